//! What tells a repeated request from another one that came with the same idempotency key.
//!
//! The debug form of a request has all its fields, also those that are added later, and quotes texts: two requests have
//! the same only if they are the same. It may change with a new version, so a key is known for a day and not for ever.

use belljar_policy::SandboxId;
use sha2::{Digest, Sha256};

use crate::plan::hex;
use crate::{CreateRequest, ExecRequest};

pub(crate) fn of_create(request: &CreateRequest) -> String {
    let request = CreateRequest { idempotency_key: None, ..request.clone() };
    hash(&format!("{request:?}"))
}

pub(crate) fn of_exec(sandbox: &SandboxId, request: &ExecRequest) -> String {
    let request = ExecRequest { idempotency_key: None, ..request.clone() };
    hash(&format!("{sandbox} {request:?}"))
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use belljar_policy::Environment;

    use super::*;
    use crate::Program;

    #[test]
    fn requests_that_differ_have_different_fingerprints() {
        let plain = CreateRequest::default();
        let with = |text: &str| CreateRequest {
            environment: Environment::parse([text]).unwrap(),
            ..CreateRequest::default()
        };
        let keyed = CreateRequest { idempotency_key: Some("k".to_owned()), ..plain.clone() };
        assert_eq!(of_create(&plain), of_create(&keyed));
        assert_ne!(of_create(&plain), of_create(&with("A=1")));
        assert_ne!(of_create(&with("A=2")), of_create(&with("A=1")));

        let sandbox = |text| SandboxId::parse(text).unwrap();
        let exec = |words: &[&str]| {
            ExecRequest::new(Program::Argv(words.iter().map(Into::into).collect()))
        };
        let (one, two) = (sandbox("n001aaaa"), sandbox("n001bbbb"));
        assert_eq!(of_exec(&one, &exec(&["a", "b"])), of_exec(&one, &exec(&["a", "b"])));
        assert_ne!(of_exec(&one, &exec(&["a", "b"])), of_exec(&one, &exec(&["a b"])));
        assert_ne!(of_exec(&one, &exec(&["a"])), of_exec(&two, &exec(&["a"])));
    }
}
