//! Extracting zip: first a look at every header, then the contents.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::limits::check_ratio;
use super::names::EntryKind;
use super::spool::Spool;
use super::tree::Tree;
use super::zip_directory::{Entries, Method, ZipEntry};
use super::zip_end::{Directory, find_directory};
use super::{ExtractReport, refused};
use crate::Result;

const PIECE: u64 = 64 << 10;

pub(super) async fn extract(spool: Spool, mut tree: Tree<'_>) -> Result<ExtractReport> {
    let directory = find_directory(&spool).await?;
    check(&spool, directory, &mut tree).await?;
    tree.start_over();
    tree.begin().await?;
    let mut entries = Entries::new(&spool, directory);
    while let Some(entry) = entries.next().await? {
        extract_entry(&spool, &mut tree, &entry).await?;
    }
    tree.finish().await
}

/// Looks at all that can be known without unpacking.
async fn check(spool: &Spool, directory: Directory, tree: &mut Tree<'_>) -> Result<()> {
    let mut entries = Entries::new(spool, directory);
    let (mut packed, mut unpacked) = (0u64, 0u64);
    while let Some(entry) = entries.next().await? {
        admit_size(tree, &entry)?;
        match entry.kind {
            EntryKind::Link => {
                let target = read_link(spool, tree, &entry).await?;
                tree.admit_link(&entry.name, &target)?;
            }
            kind => {
                tree.admit(&entry.name, kind)?;
            }
        }
        packed = packed.saturating_add(entry.packed);
        unpacked = unpacked.saturating_add(entry.size);
        check_ratio(tree.budget.limits(), packed, unpacked)?;
    }
    Ok(())
}

async fn extract_entry(spool: &Spool, tree: &mut Tree<'_>, entry: &ZipEntry) -> Result<()> {
    admit_size(tree, entry)?;
    match entry.kind {
        EntryKind::Directory => {
            let admitted = tree.admit(&entry.name, EntryKind::Directory)?;
            tree.directory(&admitted, entry.mode).await
        }
        EntryKind::Link => {
            let target = read_link(spool, tree, entry).await?;
            let admitted = tree.admit_link(&entry.name, &target)?;
            tree.link(&admitted, target)
        }
        EntryKind::File => {
            let admitted = tree.admit(&entry.name, EntryKind::File)?;
            let mut file = tree.file(&admitted, entry.mode).await?;
            let mut contents = Contents::new(spool, entry);
            while let Some(piece) = contents.next().await? {
                file.write(&piece).await?;
            }
            tree.finish_file(file).await
        }
    }
}

fn admit_size(tree: &mut Tree<'_>, entry: &ZipEntry) -> Result<()> {
    match entry.kind {
        EntryKind::File => tree.budget.add_file(entry.size),
        EntryKind::Directory => Ok(()),
        EntryKind::Link if entry.size <= tree.budget.limits().path_length as u64 => Ok(()),
        EntryKind::Link => Err(refused(&entry.name, "is a link to nowhere")),
    }
}

/// Where a link leads is its contents, whose size was checked.
async fn read_link(spool: &Spool, tree: &Tree<'_>, entry: &ZipEntry) -> Result<Vec<u8>> {
    let mut target = Vec::new();
    let mut contents = Contents::new(spool, entry);
    while let Some(piece) = contents.next().await? {
        target.extend_from_slice(&piece);
    }
    debug_assert!(target.len() <= tree.budget.limits().path_length, "as its size was");
    Ok(target)
}

/// The contents of an entry, which must be what its headers say: as long, and with that checksum.
struct Contents<'a> {
    spool: &'a Spool,
    entry: &'a ZipEntry,
    inflate: Option<Decompress>,
    crc: Crc,
    offset: u64,
    packed_left: u64,
    size_left: u64,
    packed: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl<'a> Contents<'a> {
    fn new(spool: &'a Spool, entry: &'a ZipEntry) -> Self {
        Self {
            spool,
            entry,
            inflate: (entry.method == Method::Deflated).then(|| Decompress::new(false)),
            crc: Crc::new(),
            offset: entry.contents,
            packed_left: entry.packed,
            size_left: entry.size,
            packed: Vec::new(),
            taken: 0,
            ended: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        while !self.ended {
            if self.taken == self.packed.len() && self.packed_left > 0 {
                let length = self.packed_left.min(PIECE);
                self.packed = self.spool.read(self.offset, length as usize).await?;
                self.taken = 0;
                self.offset += length;
                self.packed_left -= length;
            }
            let piece = self.step()?;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    fn step(&mut self) -> Result<Vec<u8>> {
        let why = |why| refused(&self.entry.name, why);
        let piece = match &mut self.inflate {
            None => {
                self.taken = 0;
                self.ended = self.packed_left == 0;
                std::mem::take(&mut self.packed)
            }
            Some(inflate) => {
                let mut piece = Vec::with_capacity(PIECE as usize);
                let input = self.packed.get(self.taken..).unwrap_or_default();
                let before = inflate.total_in();
                let status = inflate
                    .decompress_vec(input, &mut piece, FlushDecompress::None)
                    .map_err(|_| why("has contents that cannot be decompressed"))?;
                let taken = (inflate.total_in() - before) as usize;
                self.taken += taken;
                self.ended = status == Status::StreamEnd;
                if !self.ended && taken == 0 && piece.is_empty() {
                    return Err(why("has contents that end in the middle"));
                }
                piece
            }
        };
        if piece.len() as u64 > self.size_left {
            return Err(why("has more contents than it says"));
        }
        self.size_left -= piece.len() as u64;
        self.crc.update(&piece);
        if self.ended {
            let whole = self.size_left == 0
                && self.packed_left == 0
                && self.taken == self.packed.len()
                && self.crc.sum() == self.entry.crc;
            if !whole {
                return Err(why("has other contents than it says"));
            }
        }
        Ok(piece)
    }
}
