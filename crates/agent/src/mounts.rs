//! Whether looking at a file can take for ever.
//!
//! A file system that lives on this machine answers; one that asks a program or another machine may not, and whoever waits
//! for it then cannot even be killed.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

/// Those that answer by themselves. Not `overlay`: what lies below one is not told.
const LOCAL: [&[u8]; 17] = [
    b"bpf",
    b"btrfs",
    b"cgroup",
    b"cgroup2",
    b"devpts",
    b"devtmpfs",
    b"erofs",
    b"ext2",
    b"ext3",
    b"ext4",
    b"mqueue",
    b"proc",
    b"ramfs",
    b"squashfs",
    b"sysfs",
    b"tmpfs",
    b"xfs",
];

/// Whether every file system in sight is one that answers by itself. No where that cannot be told.
pub(crate) fn all_answer(buffer: &mut [u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty()) {
        Ok(table) => table_answers(table, buffer),
        Err(_) => false,
    }
}

/// The kernel gives whole lines as long as one fits.
fn table_answers(table: impl AsFd, buffer: &mut [u8]) -> bool {
    loop {
        let Ok(size) = rustix::io::read(&table, &mut *buffer) else { return false };
        match buffer.get(..size).unwrap_or_default() {
            [] => return true,
            [lines @ .., b'\n'] if lines.split(|&byte| byte == b'\n').all(is_local) => {}
            _ => return false,
        }
    }
}

/// Of a line of the table. Blanks in names are written otherwise, so the mark is found where it is meant.
fn is_local(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == b' ').skip_while(|&word| word != b"-").skip(1);
    words.next().is_some_and(|kind| LOCAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_each_line_counts() {
        let local = b"46 45 254:0 /usr /usr ro,nosuid,idmapped - ext4 /dev/vda rw,discard";
        let shared = b"73 45 0:43 / /proc rw,nosuid shared:4 master:1 - proc none rw";
        assert!(is_local(local) && is_local(shared));
        for line in [
            &b"95 91 0:51 / /workspace rw - fuse.sshfs me@host:/ rw,user_id=0"[..],
            b"95 91 0:51 / /workspace rw - overlay none rw,lowerdir=lower",
            b"95 91 0:51 / /a\\040-\\040ext4 rw - nfs4 host:/ rw",
            b"95 91 0:51 / /workspace rw - ",
            b"95 91 0:51 / /workspace rw",
            b"",
        ] {
            assert!(!is_local(line), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_table_is_read_to_its_end_and_half_a_line_tells_nothing() {
        let first = "46 45 254:0 /usr /usr ro - ext4 /dev/vda rw\n";
        for (second, small, expected) in [
            ("47 45 254:0 /opt /opt ro - xfs /dev/vda rw\n", false, true),
            ("95 91 0:51 / /w rw - fuse server rw\n", false, false),
            ("47 45 254:0 /opt /opt ro - xfs /dev/vda rw\n", true, false),
        ] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&writer, first.as_bytes()).unwrap();
            rustix::io::write(&writer, second.as_bytes()).unwrap();
            drop(writer);
            let mut buffer = vec![0; if small { 20 } else { 4096 }];
            assert_eq!(table_answers(&reader, &mut buffer), expected, "{second}");
        }
    }
}
