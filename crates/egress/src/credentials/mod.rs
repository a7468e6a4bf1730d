//! Secrets on their way into requests, and out of replies.
//!
//! A request gets a credential when its verified host, every method that it may be taken for and every reading of its
//! path fit, and it goes over TLS (or the credential says that it need not). Where it came from (a redirect, another request) does not matter: each
//! request is judged by itself. Values are asked for anew with each request, so that a rotated one is used at once.

mod forms;
mod inject;
mod rewrite;
mod sigv4;

pub use belljar_policy::SecretValue;

pub(crate) use inject::{Head as RequestHead, Injected, NotInjected, Signing, inject};
pub(crate) use rewrite::{Replacements, Rewriter};

use belljar_policy::document::Credential;

use crate::http::CanonicalPath;

/// The credentials that a request to a verified host gets.
pub(crate) fn fitting<'r>(
    credentials: &'r [Credential],
    host: &str,
    methods: &[&str],
    path: &CanonicalPath,
    secure: bool,
) -> Vec<&'r Credential> {
    let fits = |credential: &&Credential| {
        (secure || credential.plain_http)
            && credential.host.0.iter().any(|pattern| pattern.matches(host))
            && methods
                .iter()
                .all(|method| credential.method.admits(|known| known.as_str() == *method))
            && path.readings().all(|path| credential.path.admits(|known| known.matches(path)))
    };
    credentials.iter().filter(fits).collect()
}
