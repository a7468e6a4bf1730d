//! The first bytes of a client: is it TLS, and for which name?

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Reason;
use crate::hello::{self, Hello};
use crate::names::normalise;

/// Who began a greeting has this long to end it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);
/// A client that says nothing for this long waits for the server to speak first (SMTP, MySQL, FTP, some SSH).
pub(crate) const SERVER_FIRST_TIME: Duration = Duration::from_millis(200);
/// What is read at once while the kind of a flow is not known.
const CHUNK: usize = 4096;

/// What a client began with. The bytes are in the caller's buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Tls(Hello),
    /// Something else, or the end of the stream.
    Plain,
    /// Nothing yet.
    Silent,
}

/// Reads until it is clear what the client speaks, appending to `bytes`; waits `first` for the first byte (none: forever).
pub(crate) async fn read(
    stream: &TcpStream,
    bytes: &mut Vec<u8>,
    first: Option<Duration>,
) -> Result<Head, Reason> {
    if bytes.is_empty() {
        let read = more(stream, bytes);
        let read = match first {
            None => read.await,
            Some(first) => match timeout(first, read).await {
                Ok(read) => read,
                Err(_) => return Ok(Head::Silent),
            },
        };
        if !read? {
            return Ok(Head::Plain);
        }
    }
    if bytes[0] != hello::HANDSHAKE {
        return Ok(Head::Plain);
    }
    let whole = async {
        loop {
            match hello::parse(bytes) {
                Ok(Some(hello)) => return Ok(Head::Tls(hello)),
                Ok(None) => {}
                Err(malformed) => {
                    tracing::debug!(%malformed, "a TLS greeting was refused");
                    return Err(Reason::HelloMalformed);
                }
            }
            if !more(stream, bytes).await? {
                return Err(Reason::HelloMalformed);
            }
        }
    };
    timeout(HEAD_TIME, whole).await.unwrap_or(Err(Reason::TimedOut))
}

/// Reads what is there within `wait`, whatever it is.
pub(crate) async fn glance(stream: &TcpStream, bytes: &mut Vec<u8>, wait: Duration) {
    // Nothing is as good as an error here: the caller looks at the bytes.
    let _ = timeout(wait, more(stream, bytes)).await;
}

/// Whether bytes begin like a request of HTTP.
pub(crate) fn is_http(bytes: &[u8]) -> bool {
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    (3..=16).contains(&method) && bytes.get(method) == Some(&b' ')
}

/// The host that the first bytes of a request name, if they do: a claim, good for choosing among verified names.
pub(crate) fn claimed_host(bytes: &[u8]) -> Option<String> {
    let mut lines = bytes.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii);
    let value = lines.by_ref().take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host:").then_some(value)
    })?;
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    normalise(text.rsplit_once(':').map_or(text, |(host, _)| host))
}

/// Reads some; false at the end of the stream.
async fn more(stream: &TcpStream, bytes: &mut Vec<u8>) -> Result<bool, Reason> {
    loop {
        let ready: io::Result<()> = stream.readable().await;
        bytes.reserve(CHUNK);
        match ready.and_then(|()| stream.try_read_buf(bytes)) {
            Ok(length) => return Ok(length > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Gone before it said what it wants.
            Err(_) => return Err(Reason::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_that_a_request_claims() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(claimed_host(text.as_bytes()).as_deref(), expected, "{text:?}");
        };
        check("GET / HTTP/1.1\r\nHost: A.example:80\r\n\r\n", Some("a.example"));
        check("GET / HTTP/1.1\r\nx: y\r\nhost:a.example\r\n", Some("a.example"));
        check("GET / HTTP/1.1\r\n\r\nHost: a.example", None);
        check("GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n", None);
        check("", None);
    }

    #[test]
    fn requests_are_told_from_other_protocols() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0", b"PROPFIND /"] {
            assert!(is_http(bytes));
        }
        for bytes in [&b""[..], b"SSH-2.0-x", b"EHLO", b"\x16\x03", b"get / HTTP/1.1", b"A /"] {
            assert!(!is_http(bytes));
        }
    }
}
