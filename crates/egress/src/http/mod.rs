//! HTTP, looked into.

use crate::Reason;
use crate::flow::{Intercepted, Outcome};

/// Serves one connection whose requests must be seen. Returns when it is over.
pub(crate) async fn serve(_connection: Intercepted) -> Outcome {
    Outcome::refused(Reason::Unsupported)
}
