//! Unpacks what a sandbox sent, which is not trusted: nothing is made or changed outside of a directory.
//!
//! Directories are entered by descriptor, one name at a time and never through a link. So where an entry lies depends neither
//! on what others made nor on what a sandbox that shares the directory does meanwhile. A link may lead up only from where
//! it is, and then down by names: each link on its way does the same, so none leads outside. Others are left out.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use belljar_policy::archive::check_link;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, futimens, symlinkat, unlinkat};
use rustix::io::Errno;
use tar::EntryType;

use super::Copied;
use super::local::{about, create, enter};

/// More is not what anybody copies by hand.
const MAX_ENTRIES: u64 = 1_000_000;

/// Unpacks a tar archive into a directory.
pub(super) fn unpack(archive: &mut dyn Read, target: &OwnedFd) -> io::Result<Copied> {
    let mut copied = Copied::default();
    let mut archive = tar::Archive::new(archive);
    let mut entries = 0u64;
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        if entries > MAX_ENTRIES {
            return Err(io::Error::other("the directory has more than a million entries"));
        }
        let path = entry.path_bytes().into_owned();
        take(&mut entry, &path, target, &mut copied)
            .map_err(|error| about(Path::new(OsStr::from_bytes(&path)), &error))?;
    }
    Ok(copied)
}

fn take<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    path: &[u8],
    target: &OwnedFd,
    copied: &mut Copied,
) -> io::Result<()> {
    let names = names(path)?;
    let mode = entry.header().mode().unwrap_or(0);
    match (entry.header().entry_type(), names.split_last()) {
        // The directory itself.
        (EntryType::Directory, None) => {}
        (EntryType::Directory, Some((name, above))) => {
            let mode = Mode::from_raw_mode(mode & 0o777 | 0o700);
            enter(descend(target, above)?, name, mode)?;
            copied.directories += 1;
        }
        (EntryType::Regular, Some((name, above))) => {
            let directory = descend(target, above)?;
            clear(&directory, name)?;
            let mut file = create(&directory, name, mode)?;
            copied.bytes += io::copy(entry, &mut file)?;
            let modified = entry.header().mtime().ok().and_then(|at| i64::try_from(at).ok());
            if let Some(tv_sec) = modified {
                let time = Timespec { tv_sec, tv_nsec: 0 };
                futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
            }
            copied.files += 1;
        }
        (EntryType::Symlink, Some((name, above))) => {
            let link = entry.link_name_bytes().unwrap_or_default();
            if check_link(&link, above.len()).is_err() {
                copied.skipped += 1;
            } else {
                let directory = descend(target, above)?;
                clear(&directory, name)?;
                symlinkat(OsStr::from_bytes(&link), &directory, *name)?;
                copied.links += 1;
            }
        }
        (EntryType::Regular | EntryType::Symlink, None) => {
            return Err(io::Error::other("an entry has no name"));
        }
        _ => copied.skipped += 1,
    }
    Ok(())
}

/// The names on the way to an entry.
fn names(path: &[u8]) -> io::Result<Vec<&OsStr>> {
    let steps = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<_> = steps.map(OsStr::from_bytes).collect();
    if path.first() == Some(&b'/') || names.contains(&OsStr::new("..")) {
        return Err(io::Error::other("the name leads out of the target"));
    }
    Ok(names)
}

/// The directory at the end of some names, made where it is missing.
fn descend(root: &OwnedFd, names: &[&OsStr]) -> io::Result<OwnedFd> {
    let root = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
    names
        .iter()
        .try_fold(root, |directory, name| enter(directory, name, Mode::from_raw_mode(0o777)))
}

/// What was there gives way, unless it is a directory.
fn clear(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(io::Error::other("a directory is in its place")),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::local::Target;
    use super::super::pack::pack;
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn unpack_into(archive: &[u8], target: &Path) -> io::Result<Copied> {
        let target = Target::new(target.to_owned(), "/").make_directory()?;
        unpack(&mut &*archive, &target)
    }

    #[test]
    fn a_directory_comes_back_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        std::fs::write(from.join("a/b/file"), "content").unwrap();
        std::fs::write(from.join("x".repeat(150)), "long").unwrap();
        symlink("a/b/file", from.join("link")).unwrap();
        symlink("../../link", from.join("a/b/up")).unwrap();
        let mut archive = Vec::new();
        assert_eq!(pack(&from, &mut archive).unwrap(), 0);
        let to = place.path().join("to");
        for _ in 0..2 {
            let Copied { files, directories, links, skipped, .. } =
                unpack_into(&archive, &to).unwrap();
            assert_eq!((files, directories, links, skipped), (2, 2, 2, 0));
            assert_eq!(std::fs::read_to_string(to.join("a/b/up")).unwrap(), "content");
            assert_eq!(std::fs::read_to_string(to.join("x".repeat(150))).unwrap(), "long");
        }
        let modified = |tree: &Path| tree.join("a/b/file").metadata().unwrap().mtime();
        assert_eq!(modified(&to), modified(&from));
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
                header.set_link_name_literal(content).unwrap();
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
        let attacks: [&[(&str, EntryType, &str)]; 5] = [
            &[("../out", regular, "x")],
            &[("a/../../out", regular, "x")],
            &[("/out", regular, "x")],
            &[
                ("a/b", EntryType::Directory, ""),
                ("link", EntryType::Symlink, "a/b"),
                ("link/c", regular, "x"),
            ],
            &[("a", regular, "x"), ("a/b", regular, "x")],
        ];
        for attack in attacks {
            let place = tempfile::tempdir().unwrap();
            let target = place.path().join("target");
            assert!(unpack_into(&archive(attack), &target).is_err(), "{attack:?}");
            assert!(!place.path().join("out").exists(), "{attack:?}");
        }
    }

    #[test]
    fn links_that_lead_out_are_not_made() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("target");
        let link = EntryType::Symlink;
        let outside = [
            ("absolute", link, "/etc"),
            ("above", link, ".."),
            ("a/above", link, "../.."),
            ("a/detour", link, "../b/../.."),
            ("empty", link, ""),
        ];
        let copied = unpack_into(&archive(&outside), &target).unwrap();
        assert_eq!((copied.links, copied.skipped), (0, 5));
        let inside = [("a/root", link, ".."), ("b", link, "a/root"), ("c", link, "./nowhere")];
        let copied = unpack_into(&archive(&inside), &target).unwrap();
        assert_eq!((copied.links, copied.skipped), (3, 0));
        assert_eq!(target.join("b").canonicalize().unwrap(), target.canonicalize().unwrap());
    }

    #[test]
    fn what_is_there_already_is_not_written_through() {
        let place = tempfile::tempdir().unwrap();
        let (precious, target) = (place.path().join("precious"), place.path().join("target"));
        std::fs::create_dir_all(&target).unwrap();
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("file"), "precious").unwrap();
        symlink(&precious, target.join("directory")).unwrap();
        symlink(precious.join("file"), target.join("file")).unwrap();
        let regular = EntryType::Regular;
        let through = archive(&[("directory/file", regular, "x")]);
        assert!(unpack_into(&through, &target).is_err());
        let copied = unpack_into(&archive(&[("file", regular, "x")]), &target).unwrap();
        assert_eq!(copied.files, 1);
        assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "x");
        // The name that the copy adds itself.
        let directory = Target::new(target.clone(), "/output/directory").make_directory();
        assert!(directory.unwrap_err().to_string().contains("remove it first"));
        assert!(Target::new(target, "/output/other").make_directory().is_ok());
    }

    #[test]
    fn harmless_twins_are_unpacked_without_set_user_bits() {
        let place = tempfile::tempdir().unwrap();
        let entries = [("a/in", EntryType::Regular, "x"), ("pipe", EntryType::Fifo, "")];
        let copied = unpack_into(&archive(&entries), place.path()).unwrap();
        assert_eq!((copied.files, copied.skipped), (1, 1));
        let mode = place.path().join("a/in").metadata().unwrap().mode();
        assert_eq!(mode & 0o7000, 0);
        assert!(!place.path().join("pipe").exists());
    }
}
