//! One request: who asks, and under which number.

use crate::caller::Caller;

/// Travels with a request from where it was identified to where it is answered.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Caller,
    pub request_id: String,
}
