//! The parsers that read what a sandbox, or a server outside, sends; for `fuzz/`. No API.

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};

/// A TLS greeting: the split into records and the moment of reading do not change what it says.
pub fn hello(bytes: &[u8]) {
    let whole = crate::hello::parse(bytes);
    let mut early = Ok(None);
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        early = crate::hello::parse(&bytes[..end]);
        if !matches!(early, Ok(None)) {
            break;
        }
    }
    match early {
        Ok(None) => {}
        decided => assert_eq!(decided, whole, "more bytes changed the answer"),
    }
    if let Ok(Some(hello)) = whole {
        let name = hello.server_name;
        assert!(
            name.as_deref()
                .is_none_or(|name| crate::names::normalise(name).as_deref() == Some(name))
        );
    }
}

/// A question of a sandbox: what is answered can be read again.
pub fn question(bytes: &[u8]) {
    crate::names::fuzz_question(bytes);
}

/// A reply of an upstream server, to a fixed question.
pub fn reply(bytes: &[u8]) {
    let Ok(message) = Message::from_vec(bytes) else { return };
    let Ok(name) = Name::from_ascii("a.example.") else { return };
    let mut question = Query::query(name, RecordType::A);
    // Any question, so that what follows it is reached.
    if let Some(echoed) = message.queries.first() {
        question = echoed.clone();
    }
    crate::names::fuzz_reply(&question, &message);
}

/// The head of a request to the proxy door.
pub fn connect(bytes: &[u8]) {
    crate::doors::fuzz_connect(bytes);
}

/// The head of a request that is looked into: a method and a target, then headers, in lines.
pub fn head(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut words = first.splitn(2, |byte| *byte == b' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let mut request = http::Request::builder().method(method).uri(target);
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default();
        request = request.header(name, parts.next().unwrap_or_default().trim_ascii());
    }
    if let Ok(request) = request.body(()) {
        crate::http::fuzz_head(&request.into_parts().0);
    }
}

/// The first bytes of a connection, as far as they are looked at before anything is decided.
pub fn opening(bytes: &[u8]) {
    crate::doors::fuzz_opening(bytes);
}
