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
/// Paths are converted automatically, so that `Tls::pem("site.pem", "site.key")` can be written.
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
            Err(_) if holds(&text, ENCRYPTED) => Err(self.encrypted()),
            Err(error) => Err(format!("{self} is not PEM: {}", words(&error))),
        }
    }

    fn encrypted(&self) -> String {
        format!(
            "{self} is encrypted; decrypt it (openssl pkey -in KEY -out PLAIN), and let file permissions protect it"
        )
    }

    /// The first private key in it.
    ///
    /// # Errors
    /// There is none that is not encrypted, or what is there is not PEM.
    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let text = self.read()?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            Error::NoItemsFound if holds(&text, "ENCRYPTED PRIVATE KEY-----") => self.encrypted(),
            _ if holds(&text, ENCRYPTED) => self.encrypted(),
            Error::NoItemsFound if holds(&text, "-----BEGIN CERTIFICATE-----") => format!(
                "{self} holds a certificate and no private key; are certificate and key swapped?"
            ),
            Error::NoItemsFound => format!(
                "{self} holds no private key; use PEM, which begins with -----BEGIN PRIVATE KEY-----"
            ),
            error => format!("{self} is not PEM: {}", words(&error)),
        })
    }
}

/// The first of the header lines of an encrypted key in the form from before PKCS#8 (RFC 1421, section 4.6.1.1), which
/// `openssl ec -aes128` still writes. They are not base64.
const ENCRYPTED: &str = "Proc-Type: 4,ENCRYPTED";

/// What is wrong with a text, and what to do.
fn words(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => {
            "it ends before a line that begins with -----END; copy the whole file again"
        }
        Error::IllegalSectionStart { .. } => {
            "a line that begins with -----BEGIN does not end with -----; copy the whole file again"
        }
        Error::Base64Decode(_) => {
            "what stands between -----BEGIN and -----END is not base64; copy the whole file again"
        }
        _ => {
            "it cannot be read as such; convert it (openssl x509 or openssl pkey), or copy it again"
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an encrypted key is called that in both forms, the one of PKCS#8 and the older one, which is still what
    /// `openssl ec -aes128` writes, and also where the chain is in the same file.
    #[test]
    fn encrypted_keys() {
        let message = "a PEM text given in code is encrypted; decrypt it (openssl pkey -in KEY -out PLAIN), and let file \
                    permissions protect it";
        let older = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
                     DEK-Info: AES-128-CBC,3D31F3B1BC7AB6B6FB2B0DC82CBFE5E4\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let newer =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let chain = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for key in [newer, older, &older.replace('\n', "\r\n"), &format!("{chain}{older}")] {
            assert_eq!(
                Pem::text(key).private_key().expect_err("it is encrypted"),
                message,
                "{key}"
            );
        }
        let both = Pem::text(format!("{older}{chain}"));
        assert_eq!(both.certificates().expect_err("the file cannot be read"), message);
    }

    /// Purpose: a text that is not PEM is refused with what is wrong with it, in words.
    #[test]
    fn broken_texts() {
        for (text, wrong) in [
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n",
                "it ends before a line that begins with -----END",
            ),
            (
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
                "what stands between -----BEGIN and -----END is not base64",
            ),
            (
                "-----BEGIN CERTIFICATE\nAAAA\n",
                "a line that begins with -----BEGIN does not end with -----",
            ),
        ] {
            let expected =
                format!("a PEM text given in code is not PEM: {wrong}; copy the whole file again");
            let message = Pem::text(text).certificates();
            assert_eq!(message.expect_err("it is broken"), expected);
            let message = Pem::text(text.replace("CERTIFICATE", "PRIVATE KEY")).private_key();
            assert_eq!(message.expect_err("it is broken"), expected);
        }
    }
}
