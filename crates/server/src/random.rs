//! Names that nobody can guess or meet twice.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Bytes from the kernel.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has started");
    bytes
}

/// A number for a request.
pub(crate) fn id() -> String {
    URL_SAFE_NO_PAD.encode(bytes::<12>())
}
