//! Extracting tar, entry by entry as it comes.

use tokio::io::AsyncRead;

use super::super::archive::{BLOCK, LARGEST_PLAIN_SIZE};
use super::names::EntryKind;
use super::pax::Extended;
use super::source::Source;
use super::tar_header::Header;
use super::tree::Tree;
use super::{ExtractReport, refused, refused_archive};
use crate::Result;

/// Extended headers besides the name that somebody may need.
const EXTENDED_ROOM: u64 = 16 << 10;

/// Headers in a row that describe the same entry.
const MOST_EXTENDED: usize = 4;

/// What the headers of one entry say together.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    link: Vec<u8>,
    kind: u8,
    mode: u32,
    size: u64,
}

pub(super) async fn extract<R: AsyncRead + Unpin>(
    mut source: Source<R>,
    mut tree: Tree<'_>,
) -> Result<ExtractReport> {
    tree.begin().await?;
    while let Some(entry) = next_entry(&mut source, &mut tree).await? {
        extract_entry(&mut source, &mut tree, entry).await?;
    }
    require_end(&mut source).await?;
    tree.finish().await
}

async fn extract_entry<R: AsyncRead + Unpin>(
    source: &mut Source<R>,
    tree: &mut Tree<'_>,
    entry: Entry,
) -> Result<()> {
    let name = entry.name.as_slice();
    let is_file = matches!(entry.kind, 0 | b'0');
    if !is_file && entry.size != 0 {
        return Err(refused(name, "has contents although it is not a file"));
    }
    match entry.kind {
        0 | b'0' if name.ends_with(b"/") => Err(refused(name, "is a file with a directory's name")),
        0 | b'0' => {
            tree.budget.add_file(entry.size)?;
            let admitted = tree.admit(name, EntryKind::File)?;
            let mut file = tree.file(&admitted, entry.mode).await?;
            let mut left = entry.size;
            while left > 0 {
                let piece = source.read(left).await?;
                if piece.is_empty() {
                    return Err(refused_archive("ends in the middle"));
                }
                left -= piece.len() as u64;
                file.write(piece).await?;
            }
            tree.finish_file(file).await?;
            skip_padding(source, entry.size).await
        }
        b'1' => tree.same_file(name, &entry.link, entry.mode).await,
        b'2' => {
            let admitted = tree.admit_link(name, &entry.link)?;
            tree.link(&admitted, entry.link)
        }
        b'5' => {
            let admitted = tree.admit(name, EntryKind::Directory)?;
            tree.directory(&admitted, entry.mode).await
        }
        b'3' | b'4' => Err(refused(name, "is a device")),
        b'6' => Err(refused(name, "is a pipe")),
        b'S' => Err(refused(name, "is a sparse file")),
        _ => Err(refused(name, "is of a kind that is not extracted")),
    }
}

/// Reads headers up to one that describes an entry; `None` at the end of the archive.
async fn next_entry<R: AsyncRead + Unpin>(
    source: &mut Source<R>,
    tree: &mut Tree<'_>,
) -> Result<Option<Entry>> {
    let mut extended = Extended::default();
    let mut before = 0;
    loop {
        let mut block = [0; BLOCK];
        if !source.read_whole(&mut block).await? {
            return Err(refused_archive("ends in the middle"));
        }
        if block == [0; BLOCK] {
            return match before {
                0 => Ok(None),
                _ => Err(refused_archive("ends in the middle")),
            };
        }
        let header = Header::parse(&block).map_err(refused_archive)?;
        let why = |why| refused(&header.name, why);
        if !matches!(header.kind, b'x' | b'g' | b'L' | b'K') {
            return combine(header, extended).map(Some);
        }
        before += 1;
        // Also what is not an entry costs somebody time.
        tree.budget.add_entry()?;
        let limits = tree.budget.limits();
        let most = 2 * limits.path_length as u64 + EXTENDED_ROOM;
        if before > MOST_EXTENDED || header.size > most {
            return Err(why("has too much in front of it"));
        }
        let mut contents = vec![0; header.size as usize];
        if !contents.is_empty() && !source.read_whole(&mut contents).await? {
            return Err(refused_archive("ends in the middle"));
        }
        skip_padding(source, header.size).await?;
        match header.kind {
            b'x' => extended.read(&contents, false).map_err(why)?,
            b'g' => extended.read(&contents, true).map_err(why)?,
            kind => {
                let long = long_name(&contents).ok_or_else(|| why("has a malformed long name"))?;
                let target = if kind == b'L' { &mut extended.path } else { &mut extended.link };
                if target.replace(long).is_some() {
                    return Err(why("has contradictory extended headers"));
                }
            }
        }
    }
}

/// The extended headers complete the plain one, which must not contradict them.
fn combine(header: Header, extended: Extended) -> Result<Entry> {
    let name = extended.path.unwrap_or(header.name);
    let size = match extended.size {
        None => header.size,
        Some(size) if size == header.size => size,
        // The plain header cannot hold it.
        Some(size) if size > LARGEST_PLAIN_SIZE && header.size == 0 => size,
        // Readers differ in which they believe, and so in where the next header is.
        Some(_) => return Err(refused(&name, "has two different sizes")),
    };
    let link = extended.link.unwrap_or(header.link);
    Ok(Entry { name, link, kind: header.kind, mode: header.mode, size })
}

/// A name in the way of GNU: ends with the only NUL.
fn long_name(contents: &[u8]) -> Option<Vec<u8>> {
    let name = contents.strip_suffix(&[0]).unwrap_or(contents);
    (!name.is_empty() && !name.contains(&0)).then(|| name.to_vec())
}

async fn skip_padding<R: AsyncRead + Unpin>(source: &mut Source<R>, size: u64) -> Result<()> {
    let over = (size % BLOCK as u64) as usize;
    let mut padding = [0; BLOCK];
    let rest = padding.get_mut(over..).unwrap_or_default();
    match over == 0 || source.read_whole(rest).await? {
        true => Ok(()),
        false => Err(refused_archive("ends in the middle")),
    }
}

/// After the first block of zeros only zeros follow: what is hidden behind it, other programs would extract.
async fn require_end<R: AsyncRead + Unpin>(source: &mut Source<R>) -> Result<()> {
    loop {
        let piece = source.read(u64::MAX).await?;
        if piece.is_empty() {
            return Ok(());
        }
        if piece.iter().any(|&byte| byte != 0) {
            return Err(refused_archive("has something behind its end"));
        }
    }
}
