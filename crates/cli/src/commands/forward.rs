//! `belljar forward`: ports of this machine's loopback, joined to ports of a sandbox.

use std::net::Ipv4Addr;
use std::sync::Arc;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::Done;
use crate::args::ForwardArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{note, print, print_json_line};

/// Read at once from a connection.
const PIECE: usize = 64 << 10;
/// Pieces that wait for the server.
const WAITING: usize = 4;
/// Connections at once; more wait in the kernel's queue.
const MOST: usize = 256;

/// One port here, one there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    local: u16,
    remote: u16,
}

#[derive(Serialize)]
struct Listening<'a> {
    address: String,
    sandbox: &'a str,
    port: u16,
}

pub(crate) async fn forward(context: &Context, args: &ForwardArgs) -> Result<Done, Failure> {
    let pairs = args.ports.iter().map(|text| pair(text)).collect::<Result<Vec<_>, _>>()?;
    context
        .with_client(async |client| {
            let request = v1::GetSandboxRequest { sandbox: args.sandbox.clone() };
            client.sandboxes.clone().get_sandbox(request).await?;
            let mut tasks = tokio::task::JoinSet::new();
            for pair in &pairs {
                let listener = bind(pair.local).await?;
                let address = listener.local_addr().map_err(|error| cannot_listen(&error))?;
                if args.json {
                    let sandbox = args.sandbox.as_str();
                    let address = address.to_string();
                    print_json_line(&Listening { address, sandbox, port: pair.remote })?;
                } else {
                    print(&format!("{address} -> {} port {}\n", args.sandbox, pair.remote))?;
                }
                let (client, sandbox, quiet) =
                    (client.clone(), args.sandbox.clone(), context.quiet);
                tasks.spawn(serve(listener, client, sandbox, pair.remote, quiet));
            }
            let interrupted = tokio::signal::ctrl_c();
            tokio::select! {
                _ = interrupted => {}
                Some(_) = tasks.join_next() => {}
            }
            Ok(())
        })
        .await?;
    Ok(Done::Success)
}

async fn serve(listener: TcpListener, client: Client, sandbox: String, port: u16, quiet: bool) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (client, sandbox) = (client.clone(), sandbox.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Err(failure) = join(stream, client, sandbox, port).await {
                note(quiet, &failure.message);
            }
        });
    }
}

/// One connection, until both sides have said all.
async fn join(
    stream: TcpStream,
    mut client: Client,
    sandbox: String,
    port: u16,
) -> Result<(), Failure> {
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let (sender, messages) = mpsc::channel(WAITING);
    let first = v1::ForwardPortRequest { sandbox, port: port.into(), ..Default::default() };
    let _ = sender.try_send(first);
    let answers = client.ports.forward_port(ReceiverStream::new(messages)).await;
    let mut answers = answers?.into_inner();
    let sending = tokio::spawn(send(reader, sender));
    while let Some(answer) = answers.message().await? {
        if writer.write_all(&answer.data).await.is_err() {
            break;
        }
    }
    let _ = writer.shutdown().await;
    // What was still to be said is said to nobody.
    sending.abort();
    Ok(())
}

async fn send(mut reader: OwnedReadHalf, sender: mpsc::Sender<v1::ForwardPortRequest>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(size @ 1..) = reader.read(&mut buffer).await {
        let data = buffer[..size].to_vec().into();
        let piece = v1::ForwardPortRequest { data, ..Default::default() };
        if sender.send(piece).await.is_err() {
            return;
        }
    }
}

async fn bind(port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| {
        cannot_listen(&error).with_remedy("choose another port before the colon, or 0 for any")
    })
}

fn cannot_listen(error: &std::io::Error) -> Failure {
    Failure::new(Code::HostExhausted, "cannot listen on this machine's loopback").caused_by(error)
}

fn pair(text: &str) -> Result<Pair, Failure> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    match (local.parse(), remote.parse()) {
        (Ok(local), Ok(remote @ 1..)) => Ok(Pair { local, remote }),
        _ => Err(Failure::new(Code::InvalidArgument, format!("`{text}` names no ports"))
            .with_remedy("write `LOCAL:REMOTE`, such as `8080:80`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_pairs() {
        let read = |text: &str| pair(text).ok().map(|pair| (pair.local, pair.remote));
        assert_eq!(read("8080"), Some((8080, 8080)));
        assert_eq!(read("0:80"), Some((0, 80)));
        assert_eq!(read("8080:80"), Some((8080, 80)));
        for wrong in ["", "0", "a:1", "1:0", "1:65536", "1:2:3", "1:"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
