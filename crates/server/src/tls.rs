//! The server's certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_codes::Code;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::problem::{Problem, Result};

/// Files of a certificate chain and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Tls {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
            .map_err(|error| unusable(&self.certificate, &error))?;
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unusable(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&self.certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> Problem {
    Problem::new(Code::InvalidConfiguration, format!("`{}` cannot be used for TLS", path.display()))
        .caused_by(error)
        .with_remedy("give a certificate chain and its key as PEM files")
}
