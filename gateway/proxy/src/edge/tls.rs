//! The listener's certificate: loaded from PEM files, replaced while connections are open.
//!
//! A reload swaps what new handshakes see; connections that are open keep what they have. A bad file leaves the running
//! certificate in place. Watching the files is left to the binary.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};
use tokio_rustls::TlsAcceptor;

/// What clients may choose, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why a certificate cannot be used. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not PEM, or not what it should hold.
    #[error("{} holds no usable PEM {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
        /// Why, where the parser says.
        source: pem::Error,
    },
    /// The certificate file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not belong together, or their kind is not supported.
    #[error("certificate {} and key {} cannot be used together", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The TLS library refuses its own defaults.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A certificate that was read and found good.
pub struct Certificate {
    files: Files,
    certified: Arc<CertifiedKey>,
}

/// A certificate in use, and the acceptor that shows it.
#[derive(Clone)]
pub struct Tls {
    current: Arc<Current>,
    acceptor: TlsAcceptor,
}

impl Certificate {
    /// Reads the files. Nothing shows it yet.
    pub fn read(files: Files) -> Result<Self, Error> {
        let certified = Arc::new(read(&files, &Arc::new(aws_lc_rs::default_provider()))?);
        Ok(Self { files, certified })
    }
}

impl Tls {
    /// Reads the files and prepares to accept connections.
    pub fn load(files: Files) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Arc::new(Current(ArcSwap::from_pointee(Certificate::read(files)?)));
        let resolver = Arc::clone(&current);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        Ok(Self { current, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Reads the files again and shows what they hold to new connections. Returns whether the certificate changed.
    pub fn reload(&self) -> Result<bool, Error> {
        Ok(self.show(Certificate::read(self.files())?))
    }

    /// Shows `certificate` to new connections from now on. Returns whether it is another one.
    pub fn show(&self, certificate: Certificate) -> bool {
        let changed = self.current.0.load().certified.cert != certificate.certified.cert;
        self.current.0.store(Arc::new(certificate));
        changed
    }

    /// Accepts connections with whatever certificate is current.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// The files of the certificate that is shown, to watch.
    pub fn files(&self) -> Files {
        self.current.0.load().files.clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The certificate of the moment.
#[derive(Debug)]
struct Current(ArcSwap<Certificate>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified))
    }
}

fn read(files: &Files, provider: &Arc<CryptoProvider>) -> Result<CertifiedKey, Error> {
    let Files { certificate, key } = files;
    let chain = read_file(certificate)?;
    let malformed = |what, path: &Path, source| Error::Malformed { path: path.into(), what, source };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|source| malformed("certificate", certificate, source))?;
    if chain.is_empty() {
        return Err(Error::NoCertificate { path: certificate.clone() });
    }
    let private = PrivateKeyDer::from_pem_slice(&read_file(key)?)
        .map_err(|source| malformed("private key", key, source))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|source| Error::Unusable {
        certificate: certificate.clone(),
        key: key.clone(),
        source,
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Unreadable { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey as Generated, generate_simple_self_signed};
    use tempfile::TempDir;

    use super::*;

    fn write(dir: &TempDir, name: &str) -> Files {
        let Generated { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = Files {
            certificate: dir.path().join(format!("{name}.crt")),
            key: dir.path().join(format!("{name}.key")),
        };
        fs::write(&files.certificate, cert.pem()).unwrap();
        fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn a_reload_shows_the_new_certificate_and_a_bad_file_keeps_the_old() {
        let dir = TempDir::new().unwrap();
        let files = write(&dir, "server");
        let tls = Tls::load(files.clone()).unwrap();
        let first = tls.current.0.load_full();
        assert!(!tls.reload().unwrap(), "the same files are no change");
        write(&dir, "server");
        assert!(tls.reload().unwrap());
        let second = tls.current.0.load_full();
        assert_ne!(first.certified.cert, second.certified.cert);
        fs::write(&files.certificate, "nonsense").unwrap();
        assert!(tls.reload().is_err());
        assert_eq!(tls.current.0.load_full().certified.cert, second.certified.cert);
    }

    #[test]
    fn a_certificate_from_other_files_is_shown_and_watched() {
        let dir = TempDir::new().unwrap();
        let tls = Tls::load(write(&dir, "one")).unwrap();
        let other = write(&dir, "two");
        let certificate = Certificate::read(other.clone()).unwrap();
        assert!(tls.clone().show(certificate));
        assert_eq!(tls.files(), other);
        assert!(!tls.reload().unwrap(), "it is read from there");
    }

    #[test]
    fn every_problem_names_its_file() {
        let dir = TempDir::new().unwrap();
        let good = write(&dir, "good");
        let other = write(&dir, "other");
        let empty = dir.path().join("empty.pem");
        fs::write(&empty, "").unwrap();
        let absent = dir.path().join("absent.pem");
        let with = |certificate: &Path, key: &Path| {
            Tls::load(Files { certificate: certificate.into(), key: key.into() }).unwrap_err().to_string()
        };
        assert!(
            with(&absent, &good.key).contains("cannot read")
                && with(&absent, &good.key).contains("absent.pem")
        );
        assert!(with(&empty, &good.key).contains("empty.pem holds no certificate"));
        assert!(with(&good.certificate, &empty).contains("empty.pem holds no usable PEM private key"));
        assert!(with(&good.certificate, &other.key).contains("other.key cannot be used together"));
    }
}
