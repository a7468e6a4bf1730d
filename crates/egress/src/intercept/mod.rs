//! The per-sandbox certificate authority.
//!
//! Its key never leaves the host; its certificate is what the sandbox's programs trust (see [`trust`]). An authority is
//! good for one sandbox: nobody else trusts it, and it signs nothing but the hosts that this sandbox's rules look into.
//! Not here: keeping it over a restart of the server (the engine does, sealed).

mod trust;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_policy::SandboxId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use trust::{RootFile, TRUST_BUNDLE, TRUST_CERTIFICATE, TRUST_DIRECTORY, Trust, Untrustable};

/// Longer than any sandbox lives.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Made anew when it is half over.
const LEAF_LIFE: Duration = Duration::from_secs(7 * 86_400);
/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(86_400);
/// Hosts whose certificates are kept ready.
const MAX_LEAVES: usize = 512;

/// Signs certificates for the hosts that one sandbox's rules look into. Cheap to clone.
#[derive(Clone)]
pub struct Authority {
    inner: Arc<Inner>,
}

struct Inner {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    leaves: Mutex<HashMap<String, (SystemTime, Arc<ServerConfig>)>>,
    client: OnceLock<[Arc<ClientConfig>; 2]>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
    #[error("a certificate cannot be used")]
    Use(#[from] rustls::Error),
    #[error("the system has no certificates of authorities that it trusts")]
    NoRoots,
}

impl Authority {
    /// A new one, for a new sandbox.
    ///
    /// # Errors
    /// Where no key can be made.
    pub fn generate(sandbox: &SandboxId) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = params(sandbox).self_signed(&key)?.pem();
        Ok(Self::with(sandbox, key, certificate))
    }

    /// The one that was made before: what [`Authority::key_pem`] and [`Authority::certificate_pem`] gave.
    ///
    /// # Errors
    /// Where the key is none.
    pub fn restore(
        sandbox: &SandboxId,
        key_pem: &str,
        certificate_pem: &str,
    ) -> Result<Self, AuthorityError> {
        Ok(Self::with(sandbox, KeyPair::from_pem(key_pem)?, certificate_pem.to_owned()))
    }

    fn with(sandbox: &SandboxId, key: KeyPair, certificate: String) -> Self {
        let issuer = Issuer::new(params(sandbox), key);
        let (leaves, client) = (Mutex::default(), OnceLock::new());
        Self { inner: Arc::new(Inner { issuer, certificate, leaves, client }) }
    }

    /// What the sandbox trusts.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.inner.certificate
    }

    /// Secret: stays on the host, sealed.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.inner.issuer.key().serialize_pem()
    }

    /// How to answer a client that wants `host`.
    pub(crate) fn server(&self, host: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        let now = SystemTime::now();
        let mut leaves = self.inner.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, config)) = leaves.get(host)
            && now.duration_since(*made).is_ok_and(|age| age < LEAF_LIFE / 2)
        {
            return Ok(Arc::clone(config));
        }
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(self.make(host, now)?);
        leaves.insert(host.to_owned(), (now, Arc::clone(&config)));
        Ok(config)
    }

    fn make(&self, host: &str, now: SystemTime) -> Result<ServerConfig, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into()?),
        }];
        params.distinguished_name = DistinguishedName::new();
        params.not_before = (now - BEFORE).into();
        params.not_after = (now + LEAF_LIFE).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.inner.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// How to speak to the other side, whose certificate is verified against `roots` or the system's store.
    pub(crate) fn client(
        &self,
        roots: Option<&Arc<RootCertStore>>,
        http2: bool,
    ) -> Result<Arc<ClientConfig>, AuthorityError> {
        if let Some(configs) = self.inner.client.get() {
            return Ok(Arc::clone(&configs[usize::from(http2)]));
        }
        let roots = match roots {
            Some(roots) => Arc::clone(roots),
            None => system_roots()?,
        };
        let config = |protocols: &[&[u8]]| {
            let mut config = ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()?
                .with_root_certificates(Arc::clone(&roots))
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Ok::<_, rustls::Error>(Arc::new(config))
        };
        let configs = [config(&[b"http/1.1"])?, config(&[b"h2", b"http/1.1"])?];
        Ok(Arc::clone(&self.inner.client.get_or_init(|| configs)[usize::from(http2)]))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(…)")
    }
}

/// What an authority says of itself. Made from the id alone, so that a restored one signs with the same name.
fn params(sandbox: &SandboxId) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Belljar");
    params.distinguished_name.push(DnType::CommonName, format!("Belljar sandbox {sandbox}"));
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + AUTHORITY_LIFE).into();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    static PROVIDER: OnceLock<Arc<rustls::crypto::CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}

/// Read once: reading takes tens of milliseconds.
fn system_roots() -> Result<Arc<RootCertStore>, AuthorityError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() { Err(AuthorityError::NoRoots) } else { Ok(Arc::clone(roots)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SandboxId {
        SandboxId::parse("n001aaaa").unwrap()
    }

    #[test]
    fn a_restored_authority_signs_what_the_first_certificate_verifies() {
        let first = Authority::generate(&id()).unwrap();
        let again = Authority::restore(&id(), &first.key_pem(), first.certificate_pem()).unwrap();
        assert_eq!(first.certificate_pem(), again.certificate_pem());
        assert!(again.server("example.com").is_ok());
        assert!(Authority::restore(&id(), "nothing", "").is_err());
        assert!(!format!("{first:?}").contains("KEY"));
    }

    #[test]
    fn leaves_are_made_once() {
        let authority = Authority::generate(&id()).unwrap();
        let one = authority.server("example.com").unwrap();
        assert!(Arc::ptr_eq(&one, &authority.server("example.com").unwrap()));
        assert!(!Arc::ptr_eq(&one, &authority.server("example.org").unwrap()));
        assert!(authority.server("not a name").is_ok() || authority.server("ä").is_err());
    }
}
