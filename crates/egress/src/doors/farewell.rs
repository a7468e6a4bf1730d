//! Denying so that the client can tell why: HTTP gets a reply, TLS an alert, everything else a reset.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::head::{self, is_http};
use super::pump;
use super::tunnel::{Target, refused};
use crate::Reason;
use crate::hello::HANDSHAKE;

/// How long a client has to take what it is told.
const TIME: Duration = Duration::from_millis(500);
/// More than this is not read from a client whose request is denied.
const MAX_REST: usize = 256 * 1024;

/// A fatal TLS alert, in a record of any version.
const fn alert(code: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, code]
}
const ACCESS_DENIED: u8 = 49;
const INTERNAL_ERROR: u8 = 80;

/// Tells the client, as far as it said what it speaks, and closes. Takes at most a second.
pub(super) async fn say(stream: &TcpStream, read: &mut Vec<u8>, target: &Target, reason: Reason) {
    if read.is_empty() {
        head::glance(stream, read, head::SERVER_FIRST_TIME).await;
    }
    let message = if is_http(read) {
        refused(target, reason)
    } else if read.first() == Some(&HANDSHAKE) {
        let unreachable = matches!(reason, Reason::ResolveFailed | Reason::ConnectFailed);
        alert(if unreachable { INTERNAL_ERROR } else { ACCESS_DENIED }).to_vec()
    } else {
        pump::reset(stream);
        return;
    };
    let told = async {
        pump::write(&message, stream).await?;
        belljar_sys::stream::end_writing(stream)?;
        // Closing with bytes unread would be a reset, which could overtake what was written.
        let mut rest = 0;
        while rest < MAX_REST {
            stream.readable().await?;
            read.clear();
            match stream.try_read_buf(read) {
                Ok(0) => break,
                Ok(length) => rest += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok::<_, io::Error>(())
    };
    // Whoever does not listen is not told.
    let _ = timeout(TIME, told).await;
}
