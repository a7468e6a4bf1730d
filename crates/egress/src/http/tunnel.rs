//! WebSockets: bytes in both directions once both sides have agreed, counted and cut like everything else.

use std::sync::Arc;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::exchange::Exchange;
use crate::credentials::{Replacements, Rewriter};
use crate::flow::{Direction, Place};

const BUFFER: usize = 16 << 10;

/// Runs until both sides are done, one fails, or the request is no longer allowed.
pub(super) async fn run(
    client: OnUpgrade,
    server: OnUpgrade,
    exchange: Arc<Exchange>,
    hide: Replacements,
    _place: Place,
) {
    let (client, server) = match tokio::try_join!(client, server) {
        Ok((client, server)) => (TokioIo::new(client), TokioIo::new(server)),
        Err(error) => {
            tracing::debug!(%error, "an upgrade failed");
            return;
        }
    };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let up = pass(from_client, to_server, &exchange, Direction::Up, Replacements::default());
    let down = pass(from_server, to_client, &exchange, Direction::Down, hide);
    let both = async { tokio::try_join!(up, down) };
    tokio::select! {
        biased;
        () = exchange.revoked() => {}
        _ = both => {}
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    exchange: &Exchange,
    direction: Direction,
    replacements: Replacements,
) -> std::io::Result<()> {
    let mut rewriter = (!replacements.is_empty()).then(|| Rewriter::new(replacements));
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            if let Some(rewriter) = &mut rewriter {
                to.write_all(&rewriter.finish()).await?;
            }
            return to.shutdown().await;
        }
        let spent = |_| std::io::Error::from(std::io::ErrorKind::QuotaExceeded);
        exchange.count(direction, count).await.map_err(spent)?;
        match &mut rewriter {
            Some(rewriter) => {
                let data = rewriter.push(Bytes::copy_from_slice(&buffer[..count]));
                to.write_all(&data).await?;
            }
            None => to.write_all(&buffer[..count]).await?,
        }
        to.flush().await?;
    }
}
