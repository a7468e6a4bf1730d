//! The servers of the origin: bytes on demand, an echo, connections that stay, the same over TLS, and names.
//!
//! Threads and blocking sockets: they cost the same whether or not Belljar is between them and the client.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::sync::watch;

use super::world::{NAMES, ORIGIN};

/// Sends as many bytes as it is asked for.
pub(super) const BULK: u16 = 9001;
/// Sends back what it gets.
pub(super) const ECHO: u16 = 9002;
/// Keeps what comes.
pub(super) const HOLD: u16 = 9003;
/// Answers the first byte, and tells when the connection ends.
pub(super) const CUT: u16 = 9004;
pub(super) const WEB: u16 = 443;
/// Every name below `.test` is the origin's; its certificate is for this one.
pub(super) const WEB_NAME: &str = "web.test";

const CHUNK: usize = 256 * 1024;
const MAX_HEAD: usize = 8192;
/// All connections of the benchmark may come at once; who finds no place in the queue tries again after a second.
const BACKLOG: i32 = 4096;

pub(super) struct Origin {
    /// The certificate of the web server, which is its own authority.
    pub(super) certificate: String,
    held: Mutex<Held>,
    arrived: watch::Sender<usize>,
    /// Connections to [`CUT`], from their first byte to their end.
    cuts: watch::Sender<Cuts>,
}

/// Connections that stay.
#[derive(Debug, Default)]
struct Held {
    streams: Vec<TcpStream>,
    /// So many of them, from the first on, know that they may go on.
    told: usize,
}

/// Connections that were there one after the other.
#[derive(Debug, Default)]
struct Cuts {
    begun: usize,
    ended: Vec<Instant>,
    /// No more are wanted.
    over: bool,
}

impl Origin {
    /// Serves in the calling thread's network namespace.
    pub(super) fn serve() -> io::Result<Arc<Self>> {
        let made = rcgen::generate_simple_self_signed([WEB_NAME.to_owned()]);
        let rcgen::CertifiedKey { cert, signing_key } = made.map_err(io::Error::other)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key)
            });
        let config = Arc::new(config.map_err(io::Error::other)?);
        let origin = Arc::new(Self {
            certificate: cert.pem(),
            held: Mutex::default(),
            arrived: watch::Sender::new(0),
            cuts: watch::Sender::new(Cuts::default()),
        });
        let names = UdpSocket::bind((NAMES, 53))?;
        thread::spawn(move || answer_names(&names));
        listen(BULK, send_bytes)?;
        listen(ECHO, echo)?;
        listen(WEB, move |stream| serve_web(stream, Arc::clone(&config)))?;
        let watcher = Arc::clone(&origin);
        listen(CUT, move |stream| watcher.watch(stream))?;
        let keeper = Arc::clone(&origin);
        let listener = TcpListener::bind((ORIGIN, HOLD))?;
        rustix::net::listen(&listener, BACKLOG)?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                keeper.lock().streams.push(stream);
                keeper.arrived.send_modify(|count| *count += 1);
            }
        });
        Ok(origin)
    }

    /// Waits until so many connections are kept.
    pub(super) async fn keeps(&self, count: usize) {
        // The sender is here, so there is always somebody to wait for.
        let _ = self.arrived.subscribe().wait_for(|arrived| *arrived >= count).await;
    }

    /// Tells those that do not know it yet that they may go on: all of them, because which of the client's is the
    /// first here is chance.
    pub(super) fn go_on(&self) -> io::Result<()> {
        let mut held = self.lock();
        let Held { streams, told } = &mut *held;
        let known = std::mem::replace(told, streams.len());
        streams[known..].iter_mut().try_for_each(|stream| stream.write_all(b"g"))
    }

    /// Waits until the connection of that number is open from end to end.
    pub(super) async fn opened(&self, number: usize) {
        let _ = self.cuts.subscribe().wait_for(|cuts| cuts.begun > number).await;
    }

    /// When the connection of that number ended.
    pub(super) async fn ended(&self, number: usize) -> Option<Instant> {
        let mut cuts = self.cuts.subscribe();
        let cuts = cuts.wait_for(|cuts| cuts.ended.len() > number).await.ok()?;
        cuts.ended.get(number).copied()
    }

    /// Whoever comes to [`CUT`] from now on is told that it is over.
    pub(super) fn end_cuts(&self) {
        self.cuts.send_modify(|cuts| cuts.over = true);
    }

    fn watch(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        if self.cuts.borrow().over {
            return stream.write_all(b"e");
        }
        stream.write_all(b"g")?;
        self.cuts.send_modify(|cuts| cuts.begun += 1);
        // However it ends; the client sends no more than that.
        let _ = stream.read(&mut byte);
        let at = Instant::now();
        self.cuts.send_modify(|cuts| cuts.ended.push(at));
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread for each connection; how a connection ends is the client's affair.
fn listen(
    port: u16,
    serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind((ORIGIN, port))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    Ok(())
}

/// A number of eight bytes, then so many bytes; and again.
fn send_bytes(mut stream: TcpStream) -> io::Result<()> {
    let mut number = [0; 8];
    loop {
        stream.read_exact(&mut number)?;
        give(&mut stream, u64::from_be_bytes(number))?;
    }
}

fn give(stream: &mut impl Write, mut left: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK];
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(&zeros[..length])?;
        left -= length as u64;
    }
    stream.flush()
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

/// `GET /b/N` over TLS: N bytes.
fn serve_web(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
            if head.len() > MAX_HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let length: u64 = path.trim_start_matches("/b/").parse().unwrap_or(0);
        // In one write, so that a small reply is one record and one segment.
        let begin = length.min(1024);
        let mut reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        reply.resize(reply.len() + begin as usize, 0);
        stream.write_all(&reply)?;
        give(&mut stream, length - begin)?;
    }
}

/// Every name has one address, and it is the origin's.
fn answer_names(socket: &UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        if let Some(reply) = answer_name(&buffer[..length], ORIGIN) {
            // A question that is not answered is asked again.
            let _ = socket.send_to(&reply, client);
        }
    }
}

fn answer_name(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let labels = question.get(HEADER..)?;
    let name = labels.iter().position(|byte| *byte == 0)? + 1;
    let end = HEADER + name + 4;
    let kind = *question.get(HEADER + name + 1)?;
    let is_address = kind == 1;
    let mut reply = question.get(..2)?.to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    reply.extend(question.get(HEADER..end)?);
    if is_address {
        // The name of the question, A, IN, a day, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 1, 0x51, 0x80, 0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_address_and_nothing_else() {
        let question = |kind: u8| {
            let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            bytes.extend(b"\x03web\x04test\0");
            bytes.extend([0, kind, 0, 1]);
            bytes
        };
        let reply = answer_name(&question(1), ORIGIN).unwrap();
        assert_eq!((&reply[..2], reply[7]), (&[7, 9][..], 1));
        assert!(reply.ends_with(&ORIGIN.octets()));
        assert_eq!(answer_name(&question(28), ORIGIN).unwrap()[7], 0);
        for cut in 0..question(1).len() - 1 {
            // Cut short it is no question; nothing is read beyond it.
            let _ = answer_name(&question(1)[..cut], ORIGIN);
        }
        assert_eq!(answer_name(&question(1)[..20], ORIGIN), None);
    }
}
