//! Packs a directory of this machine for a sandbox.
//!
//! Another sandbox may have the same directory and change it meanwhile. So directories are entered by descriptor, one name
//! at a time and never through a link, and whatever is read was opened the same way: nothing from outside goes along.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use belljar_policy::archive::{DEEPEST, check_link};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;
use tar::EntryType;

use super::local::about;

/// Writes everything below `directory` as a tar archive, links as links. What a sandbox would refuse is left out: how many.
pub(super) fn pack(directory: &Path, to: &mut dyn Write) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, directory, flags, Mode::empty())
        .map_err(|errno| about(directory, &errno.into()))?;
    let mut packing = Packing { builder: tar::Builder::new(to), left_out: 0 };
    packing.all(&root, Path::new(""), 0)?;
    packing.builder.finish()?;
    Ok(packing.left_out)
}

/// What GNU tar calls an entry that holds the name of the next.
const LONG_NAME: &[u8] = b"././@LongLink";

struct Packing<'a> {
    builder: tar::Builder<&'a mut dyn Write>,
    left_out: u64,
}

impl Packing<'_> {
    fn all(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        for name in names(directory).map_err(|error| about(path, &error))? {
            let path = path.join(&name);
            let inner =
                self.entry(directory, &name, &path, depth).map_err(|error| about(&path, &error))?;
            if let Some(inner) = inner {
                self.all(&inner, &path, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Packs one entry; a directory is the caller's to go on with.
    fn entry(
        &mut self,
        directory: &OwnedFd,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> io::Result<Option<OwnedFd>> {
        if depth >= DEEPEST {
            return Err(io::Error::other("it is too deep for an archive"));
        }
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let (inner, found) = open(directory, name, FileType::Directory)?;
                let header = header(&found, EntryType::Directory);
                self.append(header, path, OsStr::new(""), io::empty())?;
                return Ok(Some(inner));
            }
            FileType::RegularFile => {
                let (file, found) = open(directory, name, FileType::RegularFile)?;
                self.file(path, File::from(file), &found)?;
            }
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new())?;
                let target = OsStr::from_bytes(target.to_bytes());
                if check_link(target.as_bytes(), depth).is_ok() {
                    let header = header(&found, EntryType::Symlink);
                    self.append(header, path, target, io::empty())?;
                } else {
                    self.left_out += 1;
                }
            }
            _ => self.left_out += 1,
        }
        Ok(None)
    }

    fn file(&mut self, path: &Path, file: File, found: &Stat) -> io::Result<()> {
        // Holes go along as zeros: a sandbox takes no entries that leave them out.
        let size = u64::try_from(found.st_size).unwrap_or(0);
        let mut header = header(found, EntryType::Regular);
        header.set_size(size);
        // Whatever is added meanwhile would be taken for the next entry.
        let mut content = file.take(size);
        self.append(header, path, OsStr::new(""), &mut content)?;
        match content.limit() {
            0 => Ok(()),
            _ => Err(io::Error::other("it became shorter while it was read")),
        }
    }

    /// Writes an entry with its names as they are, byte by byte: the library's own way takes long ones for text.
    fn append(
        &mut self,
        mut header: tar::Header,
        path: &Path,
        link: &OsStr,
        content: impl Read,
    ) -> io::Result<()> {
        let old = header.as_old_mut();
        let names = [(b'L', path.as_os_str(), &mut old.name), (b'K', link, &mut old.linkname)];
        for (kind, name, field) in names {
            let name = name.as_bytes();
            let fits = name.len().min(field.len());
            field[..fits].copy_from_slice(&name[..fits]);
            if fits < name.len() {
                self.long_name(kind, name)?;
            }
        }
        header.set_cksum();
        self.builder.append(&header, content)
    }

    /// Writes a name in front of the header that has no room for it.
    fn long_name(&mut self, kind: u8, name: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..LONG_NAME.len()].copy_from_slice(LONG_NAME);
        header.set_entry_type(EntryType::new(kind));
        header.set_size(name.len() as u64 + 1);
        header.set_cksum();
        self.builder.append(&header, name.chain(&[0u8][..]))
    }
}

/// The names in a directory, in order.
fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(&name[..], b"." | b"..") {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

/// Opens what was seen to be of a kind, if it still is. A pipe in its place does not keep anybody waiting.
fn open(directory: impl AsFd, name: &OsStr, kind: FileType) -> io::Result<(OwnedFd, Stat)> {
    let replaced = || io::Error::other("it was replaced by something else while it was copied");
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        // A link; a socket.
        Errno::LOOP | Errno::NXIO => replaced(),
        errno => errno.into(),
    })?;
    let found = fstat(&opened)?;
    match FileType::from_raw_mode(found.st_mode) == kind {
        true => Ok((opened, found)),
        false => Err(replaced()),
    }
}

fn header(found: &Stat, kind: EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(found.st_mode & 0o7777);
    header.set_uid(found.st_uid.into());
    header.set_gid(found.st_gid.into());
    header.set_mtime(u64::try_from(found.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// Names and contents.
    fn packed(archive: &[u8]) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            found.insert(name, content);
        }
        found
    }

    /// An archive at whose making something happens once a text is written.
    struct Meanwhile<F> {
        archive: Vec<u8>,
        at: &'static [u8],
        happens: Option<F>,
    }

    impl<F: FnOnce()> Write for Meanwhile<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.archive.extend_from_slice(bytes);
            if bytes.starts_with(self.at)
                && let Some(happens) = self.happens.take()
            {
                happens();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pack_while(
        directory: &Path,
        at: &'static str,
        happens: impl FnOnce(),
    ) -> (io::Result<u64>, BTreeMap<String, String>) {
        let mut to = Meanwhile { archive: Vec::new(), at: at.as_bytes(), happens: Some(happens) };
        let left_out = pack(directory, &mut to);
        assert!(to.happens.is_none(), "nothing happened");
        let found = if left_out.is_ok() { packed(&to.archive) } else { BTreeMap::new() };
        (left_out, found)
    }

    /// A tree with a directory, and a directory of the host's.
    fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (tree, host) = (place.path().join("tree"), place.path().join("host"));
        std::fs::create_dir_all(tree.join("b")).unwrap();
        std::fs::create_dir(&host).unwrap();
        std::fs::write(tree.join("a"), "first").unwrap();
        std::fs::write(tree.join("b/key"), "ours").unwrap();
        std::fs::write(host.join("key"), "the host's").unwrap();
        (place, tree, host)
    }

    #[test]
    fn what_leads_out_is_not_packed() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("a")).unwrap();
        std::fs::write(place.path().join("file"), "x").unwrap();
        symlink("../file", place.path().join("a/inside")).unwrap();
        symlink("/etc/passwd", place.path().join("a/absolute")).unwrap();
        symlink("../../x", place.path().join("a/above")).unwrap();
        rustix::fs::mkfifoat(CWD, place.path().join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let mut archive = Vec::new();
        assert_eq!(pack(place.path(), &mut archive).unwrap(), 3);
        let mut archive = tar::Archive::new(archive.as_slice());
        let paths: Vec<_> =
            archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(paths, ["a/", "a/inside", "file"].map(PathBuf::from));
    }

    #[test]
    fn a_directory_that_becomes_a_link_is_not_followed() {
        for at in ["a", "b"] {
            let (_place, tree, host) = places();
            let (left_out, found) = pack_while(&tree, at, || {
                std::fs::rename(tree.join("b"), tree.join("z")).unwrap();
                symlink(&host, tree.join("b")).unwrap();
            });
            assert!(!found.values().any(|content| content == "the host's"), "at {at}: {found:?}");
            match at {
                // Seen as a link in time.
                "a" => assert_eq!((left_out.unwrap(), found.contains_key("b")), (1, false)),
                // It was open already, and that is what is read.
                _ => assert_eq!(found["b/key"], "ours"),
            }
        }
    }

    #[test]
    fn a_file_that_becomes_something_else_is_not_read() {
        let (_place, tree, host) = places();
        let (left_out, found) = pack_while(&tree, "b", || {
            std::fs::remove_file(tree.join("b/key")).unwrap();
            symlink(host.join("key"), tree.join("b/key")).unwrap();
        });
        assert_eq!((left_out.unwrap(), found.contains_key("b/key")), (1, false));
        // Between the look and the opening; a pipe without a writer would be waited for.
        let directory = File::open(&tree).unwrap();
        rustix::fs::mkfifoat(&directory, "pipe", Mode::from_raw_mode(0o600)).unwrap();
        symlink(&host, tree.join("link")).unwrap();
        let open = |name: &str, kind| open(&directory, OsStr::new(name), kind);
        for (name, kind) in [
            ("pipe", FileType::RegularFile),
            ("b", FileType::RegularFile),
            ("b/key", FileType::RegularFile),
            ("link", FileType::Directory),
            ("a", FileType::Directory),
        ] {
            let refused = open(name, kind).unwrap_err();
            assert!(refused.to_string().contains("was replaced"), "{name}: {refused}");
        }
        open("a", FileType::RegularFile).unwrap();
        open("b", FileType::Directory).unwrap();
    }

    #[test]
    fn a_file_that_grows_is_what_it_was() {
        let (_place, tree, _host) = places();
        let (_, found) = pack_while(&tree, "a", || {
            std::fs::write(tree.join("a"), "first and then more").unwrap();
        });
        assert_eq!(found["a"], "first");
        assert_eq!(found["b/key"], "ours");
        let (left_out, _) = pack_while(&tree, "a", || std::fs::write(tree.join("a"), "").unwrap());
        let told = left_out.unwrap_err().to_string();
        assert_eq!(told, "`a`: it became shorter while it was read");
    }

    #[test]
    fn modes_and_times_go_along_and_holes_as_zeros() {
        let (_place, tree, _host) = places();
        std::fs::set_permissions(tree.join("a"), PermissionsExt::from_mode(0o751)).unwrap();
        std::fs::set_permissions(tree.join("b"), PermissionsExt::from_mode(0o710)).unwrap();
        let holes = File::create(tree.join("holes")).unwrap();
        holes.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&holes, b"end", (1 << 20) - 3).unwrap();
        let mut archive = Vec::new();
        assert_eq!(pack(&tree, &mut archive).unwrap(), 0);
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let here = tree.join(entry.path().unwrap());
            if here.is_file() {
                assert_eq!(entry.header().entry_type(), EntryType::Regular);
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                assert!(content == std::fs::read(&here).unwrap(), "{}", here.display());
            }
            let (there, here) = (entry.header(), here.metadata().unwrap());
            assert_eq!(there.mode().unwrap() & 0o7777, here.permissions().mode() & 0o7777);
            let modified = std::os::unix::fs::MetadataExt::mtime(&here);
            assert_eq!(there.mtime().unwrap(), u64::try_from(modified).unwrap());
        }
    }

    #[test]
    fn names_go_along_byte_by_byte() {
        let place = tempfile::tempdir().unwrap();
        let name = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        // No text at all; cut within a character; no text behind what a header has room for, and before.
        let files = [
            [0xff; 120].to_vec(),
            [&[b'x'; 99][..], "é".as_bytes(), &[b'x'; 20]].concat(),
            [&[b'd'; 10][..], b"\xff", &[b'd'; 30], b"/", &[b'e'; 40], b"/", &[b'f'; 40]].concat(),
            b"\x1b]0;x\x07".to_vec(),
        ];
        for file in &files {
            let path = place.path().join(name(file));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let targets = [&[0xfe; 120][..], &[b't'; 100], b"./a//b/"];
        for (at, target) in targets.iter().enumerate() {
            symlink(name(target), place.path().join(format!("link{at}"))).unwrap();
        }
        let mut archive = Vec::new();
        assert_eq!(pack(place.path(), &mut archive).unwrap(), 0);
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            // Whoever reads strictly wants nothing behind the end of a name.
            for field in [&entry.header().as_old().name, &entry.header().as_old().linkname] {
                let text = field.split(|&byte| byte == 0).next().unwrap();
                assert!(field[text.len()..].iter().all(|&byte| byte == 0), "{field:?}");
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let link = entry.link_name_bytes().map(|link| link.into_owned());
            found.insert(entry.path_bytes().into_owned(), link.unwrap_or(content));
        }
        for file in files {
            assert_eq!(found[&file], file);
        }
        for (at, target) in targets.iter().enumerate() {
            assert_eq!(found[format!("link{at}").as_bytes()], *target);
        }
    }

    #[test]
    fn what_is_too_deep_is_said_so() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d/".repeat(DEEPEST));
        std::fs::create_dir_all(&deep).unwrap();
        pack(place.path(), &mut Vec::new()).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        let refused = pack(place.path(), &mut Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("too deep"), "{refused}");
    }
}
