//! Making a sandbox trust its authority.
//!
//! Programs look for authorities in the system's bundle, whose place depends on the distribution, or in a file that a
//! variable names. Both are given: the bundle with one certificate more in the place of the system's, and the variables
//! of those that bring their own. This only says what must be where; whoever assembles the root does it, and fails where
//! it cannot.

/// The directory inside that holds what is trusted.
pub const TRUST_DIRECTORY: &str = "/run/belljar/trust";
/// In it: everything that the root trusts, and our own.
pub const TRUST_BUNDLE: &str = "bundle.pem";
/// In it: only our own, for programs that add to what they have.
pub const TRUST_CERTIFICATE: &str = "authority.pem";

/// Where the usual distributions keep the one file that holds all authorities: Debian and Alpine, RHEL (a link to the
/// next), RHEL, Alpine and BSD, SUSE.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The variables that programs read, and the file below [`TRUST_DIRECTORY`] that each names.
const VARIABLES: [(&str, &str); 9] = [
    ("SSL_CERT_FILE", TRUST_BUNDLE),
    ("REQUESTS_CA_BUNDLE", TRUST_BUNDLE),
    ("NODE_EXTRA_CA_CERTS", TRUST_CERTIFICATE),
    ("CURL_CA_BUNDLE", TRUST_BUNDLE),
    ("GIT_SSL_CAINFO", TRUST_BUNDLE),
    ("CARGO_HTTP_CAINFO", TRUST_BUNDLE),
    ("PIP_CERT", TRUST_BUNDLE),
    ("AWS_CA_BUNDLE", TRUST_BUNDLE),
    ("DENO_CERT", TRUST_CERTIFICATE),
];

/// A file of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootFile {
    /// There is none.
    Missing,
    /// A link, with what is behind it, if that is in the root.
    Link(Option<Vec<u8>>),
    Regular(Vec<u8>),
}

/// What must be in a sandbox so that it trusts its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The content of [`TRUST_BUNDLE`].
    pub bundle: Vec<u8>,
    /// The content of [`TRUST_CERTIFICATE`].
    pub certificate: Vec<u8>,
    /// Files of the root that the bundle must be mounted over.
    pub covers: Vec<&'static str>,
}

/// Why a root cannot trust an authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrustable {
    #[error("the bundle of certificates `{0}` is not PEM")]
    NotPem(&'static str),
    #[error("the authority's certificate is not PEM")]
    NoCertificate,
}

impl Trust {
    /// `read` looks at a path of the root, following links only within it.
    ///
    /// # Errors
    /// Where the root's own bundle cannot be added to; a sandbox that would not trust its authority must not start.
    pub fn plan(
        certificate: &str,
        read: impl Fn(&'static str) -> RootFile,
    ) -> Result<Self, Untrustable> {
        if !is_pem(certificate.as_bytes()) {
            return Err(Untrustable::NoCertificate);
        }
        let (mut own, mut covers) = (Vec::new(), Vec::new());
        for path in BUNDLES {
            let content = match read(path) {
                RootFile::Missing | RootFile::Link(None) => continue,
                RootFile::Link(Some(content)) => content,
                RootFile::Regular(content) => {
                    covers.push(path);
                    content
                }
            };
            if !content.is_empty() && !is_pem(&content) {
                return Err(Untrustable::NotPem(path));
            }
            if own.is_empty() {
                own = content;
            }
        }
        if !own.is_empty() && !own.ends_with(b"\n") {
            own.push(b'\n');
        }
        own.extend_from_slice(certificate.as_bytes());
        Ok(Self { bundle: own, certificate: certificate.as_bytes().to_vec(), covers })
    }

    /// The variables that programs read.
    pub fn variables() -> impl Iterator<Item = (&'static str, String)> {
        VARIABLES.into_iter().map(|(name, file)| (name, format!("{TRUST_DIRECTORY}/{file}")))
    }
}

fn is_pem(content: &[u8]) -> bool {
    let marker = b"-----BEGIN ";
    content.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n";
    const THEIRS: &str =
        "# comment\n-----BEGIN CERTIFICATE-----\ntheirs\n-----END CERTIFICATE-----";

    fn plan(files: &[(&str, RootFile)]) -> Result<Trust, Untrustable> {
        let find = |path: &str| files.iter().find(|(known, _)| *known == path);
        Trust::plan(OURS, |path| find(path).map_or(RootFile::Missing, |(_, file)| file.clone()))
    }

    #[test]
    fn every_layout_gets_ours_besides_its_own() {
        let theirs = || THEIRS.as_bytes().to_vec();
        let debian = "/etc/ssl/certs/ca-certificates.crt";
        let redhat = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
        for (files, covers) in [
            (vec![(debian, RootFile::Regular(theirs()))], vec![debian]),
            (
                vec![
                    (debian, RootFile::Regular(theirs())),
                    ("/etc/ssl/cert.pem", RootFile::Link(Some(theirs()))),
                ],
                vec![debian],
            ),
            (
                vec![
                    ("/etc/pki/tls/certs/ca-bundle.crt", RootFile::Link(Some(theirs()))),
                    (redhat, RootFile::Regular(theirs())),
                ],
                vec![redhat],
            ),
        ] {
            let trust = plan(&files).unwrap();
            assert_eq!(String::from_utf8(trust.bundle).unwrap(), format!("{THEIRS}\n{OURS}"));
            assert_eq!((trust.certificate, trust.covers), (OURS.as_bytes().to_vec(), covers));
        }
        // A root without any bundle has programs that trust nobody: the variables give them one.
        assert_eq!(plan(&[]).unwrap().bundle, OURS.as_bytes());
    }

    #[test]
    fn what_cannot_be_trusted_is_refused() {
        let path = "/etc/ssl/cert.pem";
        let refused = plan(&[(path, RootFile::Regular(b"binary".to_vec()))]);
        assert_eq!(refused, Err(Untrustable::NotPem(path)));
        let refused = Trust::plan("", |_| RootFile::Missing);
        assert_eq!(refused, Err(Untrustable::NoCertificate));
    }
}
