//! The TLS ClientHello, read by hand and with suspicion.
//!
//! Gets the bytes that a client sent so far, over any split into records. Guarantees: reads nothing beyond the bytes,
//! never more than [`MAX_BYTES`]; what is repeated, overlong, empty where it must not be, or otherwise than the
//! standard says is malformed. Not here: deciding whether the name may be reached.

use std::fmt;

use crate::Greeting;
use crate::names::normalise;

/// More is no greeting. Post-quantum key shares make some 2 KiB; splitting into tiny records makes it sixfold.
pub(crate) const MAX_BYTES: usize = 32 * 1024;
/// Handshake records begin with this byte, no other protocol's greeting in common use does.
pub(crate) const HANDSHAKE: u8 = 22;

const CLIENT_HELLO: u8 = 1;
const MAX_RECORD: usize = 1 << 14;
const MAX_EXTENSIONS: usize = 128;
/// Protocols that are told to others; nobody needs more.
const MAX_SHOWN: usize = 16;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// The draft's numbers, which some clients still send.
const ENCRYPTED_CLIENT_HELLO_DRAFTS: std::ops::RangeInclusive<u16> = 0xfe08..=0xfe0c;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// What a greeting says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Normalised.
    pub(crate) server_name: Option<String>,
    /// Some of it is hidden from us.
    pub(crate) encrypted: bool,
    /// The protocols that it offers (ALPN), as text.
    pub(crate) protocols: Vec<String>,
}

/// Why the bytes are no greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Hello {
    /// Offers HTTP (ALPN).
    pub(crate) fn offers_http(&self) -> bool {
        self.protocols.iter().any(|name| name == "h2" || name.starts_with("http/"))
    }

    pub(crate) fn greeting(&self) -> Greeting {
        let shown = |name: &String| belljar_policy::shown(name);
        let alpn = self.protocols.iter().take(MAX_SHOWN).map(shown).collect();
        Greeting { sni: self.server_name.clone(), alpn }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Reads a greeting; `Ok(None)` where more bytes are needed.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Hello>, Malformed> {
    let Some(message) = handshake(bytes)? else {
        if bytes.len() >= MAX_BYTES {
            return Err(Malformed("is too long"));
        }
        return Ok(None);
    };
    let mut body = Reader(&message);
    body.take(2 + 32)?; // version, random
    if body.vector8()?.len() > 32 {
        return Err(Malformed("session id is too long"));
    }
    let suites = body.vector16()?;
    if suites.is_empty() || suites.len() % 2 != 0 {
        return Err(Malformed("cipher suites are not whole"));
    }
    if body.vector8()?.is_empty() {
        return Err(Malformed("has no compression method"));
    }
    let mut hello = Hello::default();
    if body.is_empty() {
        return Ok(Some(hello));
    }
    let mut extensions = Reader(body.vector16()?);
    if !body.is_empty() {
        return Err(Malformed("has bytes after its extensions"));
    }
    let mut seen = Vec::new();
    while !extensions.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        if seen.contains(&kind) || seen.len() == MAX_EXTENSIONS {
            return Err(Malformed("repeats an extension or has too many"));
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => hello.server_name = Some(server_name(content)?),
            ALPN => hello.protocols = protocols(content)?,
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => hello.encrypted = true,
            kind if ENCRYPTED_CLIENT_HELLO_DRAFTS.contains(&kind) => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(Some(hello))
}

/// Puts the first handshake message together; none while it is not whole.
fn handshake(bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut message = Vec::new();
    let mut rest = bytes.get(..MAX_BYTES).unwrap_or(bytes);
    loop {
        // What is there is checked even where the header is not whole: nothing waits for bytes that cannot help.
        if rest.first().is_some_and(|kind| *kind != HANDSHAKE)
            || rest.get(1).is_some_and(|major| *major != 3)
        {
            return Err(Malformed("is not a handshake record"));
        }
        let Some((header, after)) = rest.split_at_checked(5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > MAX_RECORD {
            return Err(Malformed("has an empty or overlong record"));
        }
        let here = after.len().min(length);
        // As far as records are announced, whether or not their bytes have come: what is decided must not depend on that.
        let announced = message.len() + length;
        message.extend_from_slice(&after[..here]);
        if let Some(&[kind, high, middle, low]) = message.first_chunk::<4>() {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if kind != CLIENT_HELLO {
                return Err(Malformed("is not a ClientHello"));
            }
            if length > MAX_RECORD {
                return Err(Malformed("is too long"));
            }
            if announced > 4 + length {
                return Err(Malformed("is followed by more than itself"));
            }
            if message.len() == 4 + length {
                return Ok(Some(message.split_off(4)));
            }
        } else if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Malformed("is not a ClientHello"));
        }
        if here < length {
            return Ok(None);
        }
        rest = &after[length..];
    }
}

fn server_name(content: &[u8]) -> Result<String, Malformed> {
    let mut content = Reader(content);
    let mut list = Reader(content.vector16()?);
    let kind = list.number8()?;
    let name = list.vector16()?;
    if kind != 0 || !list.is_empty() || !content.is_empty() {
        return Err(Malformed("has not exactly one server name"));
    }
    std::str::from_utf8(name)
        .ok()
        // RFC 6066 has no last dot; accepting one would make two spellings of a name.
        .filter(|name| !name.ends_with('.'))
        .and_then(normalise)
        .ok_or(Malformed("has a server name that is no host name"))
}

fn protocols(content: &[u8]) -> Result<Vec<String>, Malformed> {
    let mut content = Reader(content);
    let mut list = Reader(content.vector16()?);
    let mut found = Vec::new();
    while !list.is_empty() {
        let protocol = list.vector8()?;
        if protocol.is_empty() {
            return Err(Malformed("offers a protocol without a name"));
        }
        found.push(String::from_utf8_lossy(protocol).into_owned());
    }
    if content.is_empty() { Ok(found) } else { Err(Malformed("has bytes after its protocols")) }
}

/// Takes from the front, or says that there is too little.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number8()?;
        self.take(length.into())
    }

    fn vector16(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests;
