//! A certificate in files, for a server that is measured over TLS.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new certificate with a key on the curve P-256, which clients are not asked to trust. Dropping it removes its files.
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// # Errors
    /// The files cannot be written, or there is no randomness.
    pub(super) fn make() -> Result<Certificate, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| format!("a certificate for its TLS port: {error}"))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = |kind: &str| {
            let name = format!("highwater-bench-{}-{number}-{kind}.pem", std::process::id());
            std::env::temp_dir().join(name)
        };
        let certificate = Certificate { chain: path("certificate"), key: path("key") };
        let written = write(&certificate.chain, &made.cert.pem())
            .and_then(|()| write(&certificate.key, &made.signing_key.serialize_pem()));
        written.map_err(|error| format!("the files of a certificate: {error}"))?;
        Ok(certificate)
    }

    pub(super) fn chain(&self) -> String {
        self.chain.to_string_lossy().into_owned()
    }

    pub(super) fn key(&self) -> String {
        self.key.to_string_lossy().into_owned()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        for file in [&self.chain, &self.key] {
            let _ = fs::remove_file(file); // It may not have been written.
        }
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
