//! Whom we believe: the system's certificate authorities, and those of configured files.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use tracing::warn;

/// What we offer, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Settings for connections to servers that the system's authorities or those of `files` vouch for. Reads files, so it
/// blocks.
pub(super) fn load(files: &[PathBuf]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = system().clone();
    for file in files {
        add(&mut roots, file)?;
    }
    if roots.is_empty() {
        return Err("this system has no certificate authorities; name a file with some in tls.ca".to_owned());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|problem| format!("cannot set up TLS: {problem}"))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The system's authorities, read once for all servers.
fn system() -> &'static RootCertStore {
    static SYSTEM: OnceLock<RootCertStore> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for problem in &found.errors {
            warn!(%problem, "some of the system's certificate authorities cannot be read");
        }
        let mut roots = RootCertStore::empty();
        // A few that are too old to be understood are usual.
        roots.add_parsable_certificates(found.certs);
        roots
    })
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let problem = |problem: &dyn Display| format!("cannot use the CA file {}: {problem}", file.display());
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| problem(&error))? {
        let certificate = certificate.map_err(|error| problem(&error))?;
        roots.add(certificate).map_err(|error| problem(&error))?;
    }
    if roots.len() == before { Err(problem(&"it holds no certificate")) } else { Ok(()) }
}
