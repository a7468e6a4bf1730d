//! Servers that sandboxes talk to.

use std::future::Future;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves every connection with `serve`; the address is one that the rules of the tests admit.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    address: &str,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Sends back what it gets, and its end.
pub(crate) async fn echo(address: &str) -> SocketAddr {
    serve(address, |mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    })
    .await
}

/// Speaks first, then sends back what it gets.
pub(crate) async fn greeting(address: &str) -> SocketAddr {
    serve(address, |mut stream| async move {
        let _ = stream.write_all(b"220 ready\r\n").await;
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// Writes, then reads as much.
pub(crate) async fn says(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(back)
}

/// Whether the connection is cut: an end or a reset, and not a byte but a TLS alert.
pub(crate) async fn is_cut(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 16];
    let read = tokio::time::timeout(crate::world::LIMIT, stream.read(&mut bytes)).await;
    match read.unwrap() {
        Ok(0) | Err(_) => true,
        Ok(length) => bytes[..length] == [21, 3, 3, 0, 2, 2, 49],
    }
}
