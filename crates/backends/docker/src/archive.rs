//! Archives, as engines give and take them: names and what they are, without the contents of files.

use std::io::{self, Read};
use std::path::Component;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// A name in a directory, or a path from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        executable: bool,
    },
    Link {
        to: String,
    },
    /// Another name of a file, by its path from the root.
    Twin {
        of: String,
    },
    Directory,
}

/// More names than any image has; one that has more is not looked at further.
const MOST_NAMES: usize = 100_000;

/// What is right below the directory that an archive is of.
pub(crate) fn children(archive: impl Read) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let entry = entry?;
        let path = entry.path()?.into_owned();
        let mut parts = path.components().filter(|part| *part != Component::CurDir).skip(1);
        let (Some(name), None) = (parts.next(), parts.next()) else { continue };
        let name = name.as_os_str().to_str();
        let name =
            name.ok_or_else(|| io::Error::other(format!("{path:?} is not UTF-8")))?.to_owned();
        let executable = entry.header().mode()? & 0o111 != 0;
        let kind = match entry.header().entry_type() {
            tar::EntryType::Directory => Kind::Directory,
            tar::EntryType::Symlink => {
                let to = entry.link_name()?.unwrap_or_default().to_string_lossy().into_owned();
                Kind::Link { to }
            }
            _ => Kind::File { executable },
        };
        found.push(Entry { name, kind });
        if found.len() > MOST_NAMES {
            return Err(io::Error::other("too many names"));
        }
    }
    Ok(found)
}

/// An archive of links and twins, in their order.
pub(crate) fn write(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let (kind, to) = match &entry.kind {
            Kind::Link { to } => (tar::EntryType::Symlink, to.as_str()),
            // Paths of an archive have no beginning.
            Kind::Twin { of } => (tar::EntryType::Link, of.trim_start_matches('/')),
            Kind::File { .. } | Kind::Directory => continue,
        };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(0);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_link(&mut header, entry.name.trim_start_matches('/'), to)?;
    }
    builder.into_inner()
}

/// Pieces that come from elsewhere, for who reads.
pub(crate) struct Incoming {
    pieces: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Incoming {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self { pieces, current: Bytes::new() }
    }
}

impl Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = to.len().min(self.current.len());
        self.current.copy_to_slice(&mut to[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_below() {
        let link = |name: &str, to: &str| Entry {
            name: name.to_owned(),
            kind: Kind::Link { to: to.to_owned() },
        };
        let twin = Entry {
            name: "bin/cat".to_owned(),
            kind: Kind::Twin { of: "/bin/busybox".to_owned() },
        };
        let deep = link("bin/inner/x", "y");
        let archive = write(&[link("/bin/sh", "busybox"), deep, twin]).unwrap();
        let found = children(archive.as_slice()).unwrap();
        let cat = Entry { name: "cat".to_owned(), kind: Kind::File { executable: true } };
        assert_eq!(found, [link("sh", "busybox"), cat]);
    }

    #[test]
    fn pieces_are_read_as_one() {
        let (sender, receiver) = mpsc::channel(4);
        for piece in ["ab", "", "c"] {
            sender.blocking_send(Bytes::from_static(piece.as_bytes())).unwrap();
        }
        drop(sender);
        let mut text = String::new();
        Incoming::new(receiver).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }
}
