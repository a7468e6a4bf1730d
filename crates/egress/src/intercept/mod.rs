//! The per-sandbox certificate authority.

/// Signs certificates for the hosts that one sandbox's rules look into.
#[derive(Clone, Debug)]
pub struct Authority;
