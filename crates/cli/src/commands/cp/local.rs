//! This machine's side: packing a directory, unpacking what a sandbox sent, saving a file.
//!
//! An archive from a sandbox is untrusted. Entries stay below the target: names with `..`, absolute names and ways
//! through links lead nowhere; only files, directories and links are made, never with set-user bits.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tar::EntryType;

use super::Copied;

/// More is not what anybody copies by hand.
const MAX_ENTRIES: u64 = 1_000_000;

/// Writes everything below `directory` as a tar archive, links as links.
pub(super) fn pack(directory: &Path, to: &mut dyn Write) -> io::Result<()> {
    let mut builder = tar::Builder::new(to);
    builder.follow_symlinks(false);
    append(&mut builder, directory, Path::new(""))?;
    builder.finish()
}

fn append(
    builder: &mut tar::Builder<&mut dyn Write>,
    directory: &Path,
    prefix: &Path,
) -> io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), prefix.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            builder.append_path_with_name(&path, &name)?;
            append(builder, &path, &name)?;
        } else if kind.is_file() || kind.is_symlink() {
            builder.append_path_with_name(&path, &name)?;
        }
    }
    Ok(())
}

/// Unpacks a tar archive into `target`, which is made where it is missing.
pub(super) fn unpack(archive: &mut dyn Read, target: &Path) -> io::Result<Copied> {
    std::fs::create_dir_all(target)?;
    let mut copied = Copied::default();
    let mut archive = tar::Archive::new(archive);
    let mut entries = 0u64;
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        if entries > MAX_ENTRIES {
            return Err(io::Error::other("the directory has more than a million entries"));
        }
        let count = match entry.header().entry_type() {
            EntryType::Regular => &mut copied.files,
            EntryType::Directory => &mut copied.directories,
            EntryType::Symlink => &mut copied.links,
            _ => &mut copied.skipped,
        };
        *count += 1;
        let known = matches!(
            entry.header().entry_type(),
            EntryType::Regular | EntryType::Directory | EntryType::Symlink
        );
        if !known {
            continue;
        }
        copied.bytes += entry.size();
        entry.set_preserve_permissions(false);
        if !entry.unpack_in(target)? {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            return Err(io::Error::other(format!("the name {name:?} leads out of the target")));
        }
    }
    Ok(copied)
}

/// Writes `content` to `path` under another name first, so that a file is there whole or not at all.
pub(super) fn save(content: &mut dyn Read, path: &Path, mode: u32) -> io::Result<u64> {
    if path.is_symlink() || path.metadata().is_ok_and(|found| !found.is_file()) {
        // A device or a link was named on purpose.
        return io::copy(content, &mut File::create(path)?);
    }
    let unfinished = beside(path);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&unfinished)?;
    let copied = io::copy(content, &mut file).and_then(|bytes| {
        std::fs::rename(&unfinished, path)?;
        Ok(bytes)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    copied
}

fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// The last part of a path inside a sandbox; one without a name of its own adds nothing.
pub(super) fn name_of(path: &str) -> PathBuf {
    Path::new(path).file_name().map(PathBuf::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_back_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        std::fs::write(from.join("a/b/file"), "content").unwrap();
        std::fs::write(from.join("x".repeat(150)), "long").unwrap();
        std::os::unix::fs::symlink("a/b/file", from.join("link")).unwrap();
        let mut archive = Vec::new();
        pack(&from, &mut archive).unwrap();
        let to = place.path().join("to");
        let copied = unpack(&mut archive.as_slice(), &to).unwrap();
        assert_eq!((copied.files, copied.directories, copied.links, copied.skipped), (2, 2, 1, 0));
        assert_eq!(std::fs::read_to_string(to.join("link")).unwrap(), "content");
        assert_eq!(std::fs::read_to_string(to.join("x".repeat(150))).unwrap(), "long");
    }

    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            let data = if *kind == EntryType::Regular { content.as_bytes() } else { b"" };
            header.set_size(data.len() as u64);
            if *kind == EntryType::Symlink {
                header.set_link_name(content).unwrap();
            }
            // Past the checks of the writer, which has manners.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_archive_cannot_leave_its_target() {
        let regular = EntryType::Regular;
        let attacks: [&[(&str, EntryType, &str)]; 3] = [
            &[("../out", regular, "x")],
            &[("a/../../out", regular, "x")],
            &[("link", EntryType::Symlink, ".."), ("link/out", regular, "x")],
        ];
        for attack in attacks {
            let place = tempfile::tempdir().unwrap();
            let target = place.path().join("target");
            let result = unpack(&mut archive(attack).as_slice(), &target);
            assert!(result.is_err(), "{attack:?}");
            assert!(!place.path().join("out").exists(), "{attack:?}");
        }
    }

    #[test]
    fn harmless_twins_are_unpacked_without_set_user_bits() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let entries = [("a/in", EntryType::Regular, "x"), ("pipe", EntryType::Fifo, "")];
        let copied = unpack(&mut archive(&entries).as_slice(), place.path()).unwrap();
        assert_eq!((copied.files, copied.skipped), (1, 1));
        let mode = place.path().join("a/in").metadata().unwrap().mode();
        assert_eq!(mode & 0o7000, 0);
        assert!(!place.path().join("pipe").exists());
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        assert_eq!(save(&mut b"whole".as_slice(), &path, 0o644).unwrap(), 5);
        assert!(save(&mut Broken, &path, 0o644).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
