//! Debug forms of messages that carry a secret: whoever logs one shows everything but that.

use std::fmt;

use crate::v1;

impl fmt::Debug for v1::SetSecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetSecretRequest")
            .field("name", &self.name)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_in_the_debug_form() {
        let request = v1::SetSecretRequest {
            name: "token".to_owned(),
            value: "hunter2".to_owned(),
            tenant: None,
        };
        let shown = format!("{request:?}");
        assert!(shown.contains("token") && !shown.contains("hunter2"), "{shown}");
    }
}
