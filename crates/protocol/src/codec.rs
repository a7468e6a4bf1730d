//! Frames as bytes: a little-endian u32 length, then one encoded `Frame`.
//!
//! Guarantees: no input makes this panic or allocate more than [`MAX_FRAME`] beyond what was pushed; a length above
//! the limit is an error as soon as its four bytes are there. After an error the stream has lost its place, so a
//! [`Decoder`] that failed keeps failing.

use crate::v1::{Channel, Frame, Output};
use crate::{MAX_CHUNK, MAX_FRAME};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

const PREFIX: usize = size_of::<u32>();

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("frame of {size} bytes is above the limit of {MAX_FRAME}")]
    TooLarge { size: usize },
    #[error("frame is not a valid message")]
    Malformed(#[source] prost::DecodeError),
    #[error("the stream failed before")]
    Poisoned,
}

/// Appends `frame` with its length to `out`; on error `out` is as before.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) -> Result<(), Error> {
    let size = frame.encoded_len();
    if size > MAX_FRAME {
        return Err(Error::TooLarge { size });
    }
    let prefix = u32::try_from(size).expect("MAX_FRAME fits u32").to_le_bytes();
    out.reserve(PREFIX + size);
    out.extend_from_slice(&prefix);
    frame.encode_raw(out);
    Ok(())
}

/// Appends an `Output` frame as [`encode`] would, from borrowed data in two parts: what a ring of bytes has to offer.
pub fn encode_output(
    stream: u64,
    channel: Channel,
    offset: u64,
    parts: [&[u8]; 2],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let size = parts[0].len() + parts[1].len();
    if size > MAX_CHUNK {
        return Err(Error::TooLarge { size });
    }
    // Everything but the data is encoded as usual; the data is the last field of the last message, so that it can
    // follow, and the two lengths around it are written here.
    let output = Output { channel: channel.into(), offset, data: Vec::new() };
    let mut data_header = Vec::with_capacity(HEADER);
    if size > 0 {
        encode_key(OUTPUT_DATA, WireType::LengthDelimited, &mut data_header);
        encode_varint(size as u64, &mut data_header);
    }
    let inner = output.encoded_len() + data_header.len() + size;
    let mut header = Vec::with_capacity(HEADER);
    Frame { stream, body: None }.encode_raw(&mut header);
    encode_key(FRAME_OUTPUT, WireType::LengthDelimited, &mut header);
    encode_varint(inner as u64, &mut header);
    output.encode_raw(&mut header);
    header.extend_from_slice(&data_header);
    let total = u32::try_from(header.len() + size).expect("a chunk fits u32");
    out.reserve(PREFIX + total as usize);
    out.extend_from_slice(&total.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(parts[0]);
    out.extend_from_slice(parts[1]);
    Ok(())
}

/// `Frame.body.output` and `Output.data` in the schema.
const FRAME_OUTPUT: u32 = 13;
const OUTPUT_DATA: u32 = 3;

/// More than the longest header: seven varints of at most ten bytes.
const HEADER: usize = 80;

/// Takes bytes in pieces of any size and gives back whole frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Everything before this is decoded already.
    start: usize,
    poisoned: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. Take out all frames with [`Decoder::next`] before pushing more, so that the buffer never
    /// holds more than one incomplete frame and one piece.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.poisoned {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has arrived.
    // Not an iterator: `None` here means "not yet".
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Frame>, Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let pending = &self.buffer[self.start..];
        let Some((prefix, rest)) = pending.split_first_chunk::<PREFIX>() else {
            self.release();
            return Ok(None);
        };
        let size = u32::from_le_bytes(*prefix) as usize;
        if size > MAX_FRAME {
            return Err(self.fail(Error::TooLarge { size }));
        }
        let Some(body) = rest.get(..size) else {
            return Ok(None);
        };
        match Frame::decode(body) {
            Ok(frame) => {
                self.start += PREFIX + size;
                Ok(Some(frame))
            }
            Err(error) => Err(self.fail(Error::Malformed(error))),
        }
    }

    /// Bytes received but not yet given back as frames.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Gives the memory of a large frame back once nothing is pending.
    fn release(&mut self) {
        if self.start == self.buffer.len() && self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
            self.start = 0;
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.poisoned = true;
        self.buffer = Vec::new();
        self.start = 0;
        error
    }
}

/// Buffers up to this size are kept for the next frame.
const KEPT: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Data, Hello, frame::Body};

    fn frame(stream: u64, body: Body) -> Frame {
        Frame { stream, body: Some(body) }
    }

    fn data(size: usize) -> Frame {
        frame(3, Body::Data(Data { data: vec![7; size], end: false }))
    }

    #[test]
    fn survives_being_cut_anywhere() {
        let hello = frame(0, Body::Hello(Hello { oldest_version: 1, newest_version: 9 }));
        let sent = [hello, data(1000), Frame::default(), data(0)];
        let mut bytes = Vec::new();
        for frame in &sent {
            encode(frame, &mut bytes).expect("small");
        }
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::new();
            let mut received = Vec::new();
            for piece in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(piece);
                while let Some(frame) = decoder.next().expect("valid") {
                    received.push(frame);
                }
            }
            assert_eq!(received, sent);
            assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn refuses_a_large_frame_before_it_arrives() {
        let mut decoder = Decoder::new();
        decoder.push(&(MAX_FRAME as u32 + 1).to_le_bytes());
        assert_eq!(decoder.next(), Err(Error::TooLarge { size: MAX_FRAME + 1 }));
        decoder.push(&[0; 64]);
        assert_eq!(decoder.next(), Err(Error::Poisoned));
        assert_eq!(decoder.pending(), 0);
    }

    #[test]
    fn does_not_encode_a_large_frame() {
        let mut out = vec![1, 2, 3];
        assert!(matches!(encode(&data(MAX_FRAME), &mut out), Err(Error::TooLarge { .. })));
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn borrowed_output_is_encoded_like_owned() {
        for (stream, channel, offset, parts) in [
            (1, Channel::Stdout, 0, [&b"hello "[..], b"world"]),
            (u64::MAX, Channel::Stderr, u64::MAX, [b"", b"x"]),
            (0, Channel::Stdout, 0, [b"", b""]),
            (300, Channel::Stderr, 1 << 40, [&[7; MAX_CHUNK - 1], b"8"]),
        ] {
            let output = Output { channel: channel.into(), offset, data: parts.concat() };
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            encode(&frame(stream, Body::Output(output)), &mut expected).expect("small");
            encode_output(stream, channel, offset, parts, &mut found).expect("small");
            assert_eq!(found, expected);
        }
        let parts = [&[0; MAX_CHUNK][..], b"x"];
        assert!(encode_output(1, Channel::Stdout, 0, parts, &mut Vec::new()).is_err());
    }

    #[test]
    fn says_that_a_body_is_malformed() {
        let mut decoder = Decoder::new();
        decoder.push(&[2, 0, 0, 0, 0xff, 0xff]);
        assert!(matches!(decoder.next(), Err(Error::Malformed(_))));
    }
}
