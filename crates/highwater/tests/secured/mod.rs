//! Certificates, and clients that speak TLS with a server over real sockets.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use highwater::{Pem, Tls};
use highwater_testkit::read_some;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedProtocolVersion,
};

use crate::answers::{Answer, Answers};
use crate::served::HANG;

/// Who issues certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        Authority(CertifiedIssuer::self_signed(params, key).expect("the parameters are right"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// The same, with changed parameters.
    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names are right");
        params.distinguished_name.push(DnType::CommonName, "a server or client");
        change(&mut params);
        let key = KeyPair::generate().expect("there is randomness");
        let made = params.signed_by(&key, &self.0).expect("the parameters are right");
        Issued { certificate: made.pem(), key: key.serialize_pem() }
    }

    /// What a client that trusts it is configured with.
    pub(crate) fn client(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("it is an authority");
        Client { roots, versions: rustls::ALL_VERSIONS.to_vec(), identity: None, alpn: &[] }
    }
}

impl Issued {
    pub(crate) fn tls(&self) -> Tls {
        Tls::pem(Pem::text(self.certificate.as_str()), Pem::text(self.key.as_str()))
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("it was made as PEM")
    }
}

/// How clients connect.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) roots: RootCertStore,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) identity: Option<Issued>,
    pub(crate) alpn: &'static [&'static str],
}

impl Client {
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .expect("ring has ciphers for all versions")
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("it is PEM");
                builder.with_client_auth_cert(vec![own.der()], key).expect("it fits")
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A connection to `name` whose handshake is complete.
    pub(crate) fn connect(&self, address: SocketAddr, name: &str) -> io::Result<Secured> {
        connect(address, name, self.config())
    }
}

pub(crate) fn connect(
    address: SocketAddr,
    name: &str,
    config: Arc<ClientConfig>,
) -> io::Result<Secured> {
    let stream = TcpStream::connect_timeout(&address, HANG)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.set_nodelay(true)?;
    Secured::over(stream, name, config)
}

/// A connection that speaks TLS.
pub(crate) struct Secured<S: Read + Write = TcpStream> {
    pub(crate) tls: ClientConnection,
    pub(crate) stream: S,
    answers: Answers,
    rest: Vec<u8>,
}

impl<S: Read + Write> Secured<S> {
    /// Shakes hands.
    pub(crate) fn over(mut stream: S, name: &str, config: Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut tls = ClientConnection::new(config, name).expect("the configuration is right");
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Secured { tls, stream, answers: Answers::default(), rest: Vec::new() })
    }

    /// Sends plaintext.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        rustls::Stream::new(&mut self.tls, &mut self.stream).write_all(bytes)?;
        rustls::Stream::new(&mut self.tls, &mut self.stream).flush()
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        loop {
            if let Some(answer) = self.answers.next(&mut self.rest) {
                return Ok(answer);
            }
            let mut piece = [0; 16 * 1024];
            let mut stream = rustls::Stream::new(&mut self.tls, &mut self.stream);
            let len = read_some(&mut stream, &mut piece)?;
            if len == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.rest.extend_from_slice(&piece[..len]);
        }
    }

    /// The answer to one request.
    pub(crate) fn ask(&mut self, request: &str) -> io::Result<Answer> {
        self.send(request.as_bytes())?;
        self.answer()
    }

    /// Reads to the end. An error if the server does not say that it closes.
    pub(crate) fn until_closed(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        rustls::Stream::new(&mut self.tls, &mut self.stream).read_to_end(&mut rest)?;
        Ok(rest)
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// Writes one byte with each call.
pub(crate) struct Bytewise(pub(crate) TcpStream);

impl Read for Bytewise {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(1);
        self.0.read(&mut into[..len])
    }
}

impl Write for Bytewise {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
