//! Where does a certificate or a key come from, and how is it read?

use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The most that is read of a file. A chain or a bundle of authorities is some kilobytes, and the largest public bundle
/// 250 KiB.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Certificates or a private key in PEM: a file, or text.
///
/// A path becomes one by itself, so that `Tls::pem("site.pem", "site.key")` can be written.
#[derive(Clone)]
pub struct Pem(Source);

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Text(Vec<u8>),
}

impl Pem {
    /// The text itself, such as a secret that was fetched from elsewhere. It is never read again.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Pem(Source::Text(text.into()))
    }

    /// The file, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.0 {
            Source::File(path) => Some(path),
            Source::Text(_) => None,
        }
    }

    /// What it holds now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        let path = match &self.0 {
            Source::Text(text) => return Ok(text.clone()),
            Source::File(path) => path,
        };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => format!("{self} does not exist; name a file in PEM"),
            io::ErrorKind::PermissionDenied => {
                format!(
                    "{self} may not be read by this user; give the user the right to, or copy it"
                )
            }
            _ => format!("{self} cannot be read: {error}"),
        };
        let about = fs::metadata(path).map_err(failed)?;
        if !about.is_file() || about.len() > FILE_MAX {
            return Err(format!("{self} is not a file of up to 4 MiB; name a file in PEM"));
        }
        fs::read(path).map_err(failed)
    }

    /// The certificates in it, at least one.
    ///
    /// # Errors
    /// There are none, or what is there is not PEM.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let text = self.read()?;
        let all: Result<Vec<_>, Error> = CertificateDer::pem_slice_iter(&text).collect();
        match all {
            Ok(all) if all.is_empty() && holds(&text, "PRIVATE KEY-----") => Err(format!(
                "{self} holds a private key and no certificate; are certificate and key swapped?"
            )),
            Ok(all) if all.is_empty() => Err(format!(
                "{self} holds no certificate; use PEM, which begins with -----BEGIN CERTIFICATE-----"
            )),
            Ok(all) => Ok(all),
            Err(error) => Err(format!("{self} is not PEM: {error}")),
        }
    }

    /// The first private key in it.
    ///
    /// # Errors
    /// There is none that is not encrypted, or what is there is not PEM.
    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let text = self.read()?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            Error::NoItemsFound if holds(&text, "ENCRYPTED PRIVATE KEY-----") => format!(
                "{self} is encrypted; decrypt it (openssl pkey -in KEY -out PLAIN), and let file permissions protect it"
            ),
            Error::NoItemsFound if holds(&text, "-----BEGIN CERTIFICATE-----") => format!(
                "{self} holds a certificate and no private key; are certificate and key swapped?"
            ),
            Error::NoItemsFound => format!(
                "{self} holds no private key; use PEM, which begins with -----BEGIN PRIVATE KEY-----"
            ),
            error => format!("{self} is not PEM: {error}"),
        })
    }
}

fn holds(text: &[u8], mark: &str) -> bool {
    text.windows(mark.len()).any(|window| window == mark.as_bytes())
}

/// Names it in messages.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Text(_) => f.write_str("a PEM text given in code"),
        }
    }
}

impl fmt::Debug for Pem {
    /// Without what it holds: that may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Pem(Source::File(path))
    }
}

impl From<&Path> for Pem {
    fn from(path: &Path) -> Self {
        path.to_owned().into()
    }
}

/// A path, not a text in PEM: for that, see [`Pem::text`].
impl From<&str> for Pem {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

/// A path, not a text in PEM: for that, see [`Pem::text`].
impl From<String> for Pem {
    fn from(path: String) -> Self {
        PathBuf::from(path).into()
    }
}
