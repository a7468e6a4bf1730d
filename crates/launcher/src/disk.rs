//! Disks of sandboxes: sparse files with a file system of exactly the size and number of inodes that were asked for.
//!
//! Making a file system takes tens of milliseconds, so one empty image per shape is kept and its few blocks are
//! copied for each sandbox. The loop device lets go of the file by itself when the last mount of it is gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belljar_sys::{directory, loopdev, mount};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::failure::{Result, Stage};
use crate::ids::AGENT;
use crate::wire::{Disk, DiskKind, Start};

/// Directories of every disk with their owner (`None`: the workload) and mode. `layers` holds what overlays write.
pub(crate) const DIRECTORIES: &[(&str, Option<u32>, u32)] = &[
    ("workspace", None, 0o755),
    ("output", None, 0o755),
    ("home", None, 0o755),
    ("tmp", Some(0), 0o1777),
    ("layers", Some(AGENT), 0o700),
    ("layers/workspace-0", Some(AGENT), 0o700),
    ("layers/workspace-0/upper", None, 0o755),
    ("layers/workspace-0/work", Some(0), 0o700),
    ("layers/root", Some(0), 0o700),
    ("layers/root/upper", Some(0), 0o755),
    ("layers/root/work", Some(0), 0o700),
    ("layers/usr", Some(0), 0o700),
    ("layers/usr/upper", Some(0), 0o755),
    ("layers/usr/work", Some(0), 0o700),
];

/// Whether this host can make such disks at all.
pub(crate) fn available() -> bool {
    Path::new("/dev/loop-control").exists() && make_filesystem_program().is_some()
}

fn make_filesystem_program() -> Option<PathBuf> {
    let directories = ["/sbin", "/usr/sbin", "/usr/local/sbin", "/usr/bin"];
    directories
        .iter()
        .map(|directory| Path::new(directory).join("mkfs.ext4"))
        .find(|path| path.exists())
}

/// Disks are made in turn in this many directories, which a file system that is asked to keeps apart: one that looks for
/// an unused inode then has fewer in its way that were given up just now.
const LANES: u32 = 32;

/// What distinguishes one empty disk from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Shape {
    /// The shape of the image that a sandbox needs, if it needs one.
    pub(crate) fn of(start: &Start) -> Option<Self> {
        let Disk { bytes, inodes, kind } = start.disk;
        (kind == DiskKind::Image).then_some(Self { bytes, inodes, uid: start.uid, gid: start.gid })
    }
}

/// The blocks of an empty file system that are not zero.
type Blocks = Vec<(u64, Vec<u8>)>;

#[derive(Default)]
pub(crate) struct Disks {
    empty: HashMap<Shape, Blocks>,
    made: u32,
    devices: loopdev::Finder,
}

impl Disks {
    /// Makes a disk and mounts it, detached, with an id mapping. Its file has no name: it is gone with the mount.
    pub(crate) fn make(
        &mut self,
        state: &Path,
        shape: Shape,
        user_namespace: &OwnedFd,
    ) -> Result<OwnedFd> {
        let directory = state.join("disks");
        self.made = self.made.wrapping_add(1);
        let lane = std::process::id().wrapping_add(self.made) % LANES;
        // Read once, formatted the first time ever.
        let blocks = match self.empty.entry(shape) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(empty_image(&directory, shape).stage("disk-format")?)
            }
        };
        let file = nameless_file(&directory, lane).stage("disk-create")?;
        file.set_len(shape.bytes).stage("disk-create")?;
        // First the device, then its content: the kernel waits for the medium to have what is in the file by then. What is
        // written to the device stays in memory, and a sandbox that ends soon never costs the medium anything.
        let device = self.devices.attach(file.as_fd()).stage("loop-device")?;
        for (offset, data) in &*blocks {
            device.device.write_all_at(data, *offset).stage("disk-create")?;
        }
        let tree = mounted(&device.path).stage("disk-mount")?;
        mount::map_ids(&tree, user_namespace.as_fd()).stage("disk-map-ids")?;
        Ok(tree)
    }
}

/// Mounts an image. The disk does not outlive its sandbox, so nothing is gained by waiting for the medium, nor by a thread of
/// the kernel that reads ahead what is in memory anyway; kernels that cannot leave that out have it.
fn mounted(device: &CStr) -> io::Result<OwnedFd> {
    let options =
        [(c"nobarrier", None), (c"noinit_itable", None), (c"no_prefetch_block_bitmaps", None)];
    mount::device(c"ext4", device, &options)
        .or_else(|_| mount::device(c"ext4", device, &options[..2]))
}

fn nameless_file(directory: &Path, lane: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let lane = directory.join(format!("lane-{lane}"));
    let open = || rustix::fs::open(&lane, flags, Mode::from_raw_mode(0o600));
    let opened = open().or_else(|errno| match errno {
        Errno::NOENT => {
            directory::scatter(directory);
            let _ = rustix::fs::mkdir(&lane, Mode::from_raw_mode(0o700));
            open()
        }
        errno => Err(errno),
    });
    match opened {
        Ok(file) => Ok(File::from(file)),
        // Not every file system can: give it a name for a moment.
        Err(_) => {
            let path = directory.join(format!("scratch.{}", std::process::id()));
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
    }
}

fn empty_image(directory: &Path, shape: Shape) -> io::Result<Blocks> {
    let name = format!("{}-{}-{}-{}.ext4", shape.bytes, shape.inodes, shape.uid, shape.gid);
    let path = directory.join(&name);
    if !path.exists() {
        format_image(directory, &name, shape)?;
    }
    read_blocks(&File::open(&path)?)
}

fn format_image(directory: &Path, name: &str, shape: Shape) -> io::Result<()> {
    // Helpers that come at the same time each make one of their own; the last to finish wins, and all are alike.
    let scratch = directory.join(format!("{name}.{}", std::process::id()));
    let content = directory.join(format!("{name}.{}.content", std::process::id()));
    let result = fill_image(&scratch, &content, shape)
        .and_then(|()| fs::rename(&scratch, directory.join(name)));
    let _ = fs::remove_dir_all(&content);
    let _ = fs::remove_file(&scratch);
    result
}

/// Removes what helpers that were killed left half made.
pub(crate) fn sweep(state: &Path) {
    let entries = fs::read_dir(state.join("disks")).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if maker(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

/// Who makes it; `None` for what is complete.
fn maker(name: &str) -> Option<u32> {
    name.strip_suffix(".content").unwrap_or(name).rsplit_once('.')?.1.parse().ok()
}

fn fill_image(image: &Path, content: &Path, shape: Shape) -> io::Result<()> {
    fs::create_dir(content)?;
    for (name, owner, mode) in DIRECTORIES {
        let path = content.join(name);
        fs::create_dir(&path)?;
        let (uid, gid) = owner.map_or((shape.uid, shape.gid), |id| (id, id));
        chown(&path, Some(uid), Some(gid))?;
        fs::set_permissions(&path, Permissions::from_mode(*mode))?;
    }
    File::create(image)?.set_len(shape.bytes)?;
    let program = make_filesystem_program().ok_or(io::ErrorKind::NotFound)?;
    let output = Command::new(program)
        .args(["-q", "-F", "-b", "4096", "-O", "^has_journal,^resize_inode", "-m", "0", "-N"])
        .arg(shape.inodes.to_string())
        .args(["-E", "lazy_itable_init=1,nodiscard", "-d"])
        .arg(content)
        .arg(image)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

fn read_blocks(file: &File) -> io::Result<Blocks> {
    let mut blocks = Vec::new();
    let mut position = 0;
    while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(position)) {
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        let mut data =
            vec![0; usize::try_from(end - start).map_err(|_| io::ErrorKind::InvalidData)?];
        file.read_exact_at(&mut data, start)?;
        blocks.push((start, data));
        position = end;
    }
    Ok(blocks)
}

/// Free bytes and inodes of the disk that a process sees at a path beneath its own root: a mount that was put there at the
/// start, not a place of the workload's choosing.
pub(crate) fn free_space(pid: i32, path: &str) -> Option<(u64, u64)> {
    let root = rustix::fs::open(
        format!("/proc/{pid}/root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let directory = rustix::fs::openat2(
        &root,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        rustix::fs::ResolveFlags::BENEATH
            | rustix::fs::ResolveFlags::NO_SYMLINKS
            | rustix::fs::ResolveFlags::NO_MAGICLINKS,
    )
    .ok()?;
    let stat = rustix::fs::fstatvfs(&directory).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_favail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_made_names_its_maker() {
        assert_eq!(maker("1-2-3-4.ext4.77"), Some(77));
        assert_eq!(maker("1-2-3-4.ext4.77.content"), Some(77));
        assert_eq!(maker("scratch.77"), Some(77));
        assert_eq!(maker("1-2-3-4.ext4"), None);
    }

    #[test]
    fn disks_of_one_shape_are_made_beside_each_other() {
        if make_filesystem_program().is_none() || !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("bj-disks-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let shape = Shape { bytes: 8 << 20, inodes: 1024, uid: 1000, gid: 1000 };
        empty_image(&directory, shape).unwrap();
        // Another's work, in the middle of it.
        let other = directory.join("8388608-1024-1000-1001.ext4.content");
        fs::create_dir(&other).unwrap();
        empty_image(&directory, Shape { gid: 1001, ..shape }).unwrap();
        assert!(other.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
