//! Which settings does the environment give a server whose program gives none?

use super::config::ServerConfig;
use super::error::ServerError;

/// The settings of the environment, as [`args::parse`](super::args::parse) reads them. Where they say that the server listens
/// has to be right only if `is_listen_used`.
///
/// # Errors
/// A wrong setting, with where it comes from and what to write instead.
#[cfg(feature = "cli")]
pub(super) fn settings(is_listen_used: bool) -> Result<ServerConfig, ServerError> {
    /// No command-line arguments: those are the application's.
    #[derive(clap::Parser)]
    #[command(name = "highwater")]
    struct Environment {
        #[command(flatten)]
        server: super::args::ServerArgs,
    }
    let program = [std::ffi::OsString::from("highwater")];
    let environment = std::env::vars_os();
    let parsed =
        super::args::read::<Environment>(program, environment, |_| Vec::new(), is_listen_used);
    parsed.map(|environment| environment.server.config()).map_err(|mistake| {
        let text = mistake.to_string();
        // Clap appends how to get help on the command line, which does not apply here.
        let sentence = text.split("\n\n").next().unwrap_or(&text);
        ServerError::Settings(sentence.trim_start_matches("error: ").trim_end().to_owned())
    })
}

/// Without the feature `cli` there is no code to read the environment with.
#[cfg(not(feature = "cli"))]
pub(super) fn settings(_: bool) -> Result<ServerConfig, ServerError> {
    Ok(ServerConfig::default())
}
