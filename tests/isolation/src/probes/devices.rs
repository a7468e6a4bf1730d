//! Device nodes: making them, and finding ones that reach the machine.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;

use crate::raw::{call, text};
use crate::report::Report;

/// What a sandbox's `/dev` may hold.
const ORDINARY: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "fd",
    "stdin", "stdout", "stderr", "mqueue", "core",
];

/// Makes device nodes and opens those that reach the machine.
pub(super) fn devices(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("devices");
    let nodes = [
        ("/dev/mem", c"/tmp/probe-mem", libc::S_IFCHR, (1, 1)),
        ("/dev/kmsg", c"/tmp/probe-kmsg", libc::S_IFCHR, (1, 11)),
        ("first SCSI disk", c"/tmp/probe-sda", libc::S_IFBLK, (8, 0)),
        ("first virtual disk", c"/tmp/probe-vda", libc::S_IFBLK, (254, 0)),
        ("first loop device", c"/tmp/probe-loop", libc::S_IFBLK, (7, 0)),
    ];
    for (what, path, kind, (major, minor)) in nodes {
        let device = libc::makedev(major, minor) as usize;
        let mode = (kind | 0o666) as usize;
        report.attempt(
            format!("mknod({what})"),
            call(libc::SYS_mknod, [text(path), mode, device, 0, 0, 0]),
        );
        let path = path.to_str().expect("an ASCII literal");
        report.attempt(format!("open(made {what})"), File::open(path));
    }
    let machine = [
        "mem",
        "kmem",
        "port",
        "kmsg",
        "kvm",
        "fuse",
        "net/tun",
        "loop-control",
        "loop0",
        "mapper/control",
        "vhost-net",
        "vhost-vsock",
        "vsock",
        "uinput",
        "input/event0",
        "sda",
        "vda",
        "nvme0n1",
        "nvme0",
        "rtc0",
        "hpet",
        "watchdog",
        "snapshot",
        "userfaultfd",
        "btrfs-control",
        "cuse",
        "ppp",
        "autofs",
        "cpu/0/msr",
        "tty0",
        "ttyS0",
        "vcs",
        "dma_heap",
        "sev",
        "sgx_enclave",
        "tpm0",
        "udmabuf",
        "hwrng",
        "bus/usb",
    ];
    for name in machine {
        report.attempt(format!("open(/dev/{name})"), open_either(&format!("/dev/{name}")));
    }
    report.fact("unexpected", unexpected("/dev"));

    report.twin(
        "write(/dev/null)",
        OpenOptions::new().write(true).open("/dev/null").and_then(|mut f| f.write(b"x")),
    );
    for name in ["zero", "urandom", "random", "full"] {
        let read = File::open(format!("/dev/{name}")).and_then(|mut f| f.read_exact(&mut [0; 16]));
        report.twin(format!("read(/dev/{name})"), read);
    }
    let pipe = c"/tmp/belljar-probe-fifo";
    let _ = fs::remove_file("/tmp/belljar-probe-fifo");
    report.twin(
        "mknod(fifo)",
        call(libc::SYS_mknod, [text(pipe), (libc::S_IFIFO | 0o600) as usize, 0, 0, 0, 0]),
    );
    Ok(report)
}

/// Looks for devices of GPUs and accelerators, which nobody granted.
pub(super) fn gpu(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("gpu");
    let names = [
        "nvidia0",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-modeset",
        "nvidia-caps",
        "dri",
        "dri/card0",
        "dri/renderD128",
        "kfd",
        "dxg",
        "accel",
        "accel/accel0",
        "apex_0",
        "mali0",
        "davinci0",
        "fb0",
    ];
    for name in names {
        report.attempt(format!("stat(/dev/{name})"), fs::symlink_metadata(format!("/dev/{name}")));
    }
    report.attempt("stat(/sys/class/drm/card0)", fs::metadata("/sys/class/drm/card0"));
    report.twin("stat(/dev/null)", fs::symlink_metadata("/dev/null"));
    Ok(report)
}

/// Opens for reading or for writing, whichever is possible.
fn open_either(path: &str) -> io::Result<File> {
    File::open(path).or_else(|_| OpenOptions::new().write(true).open(path))
}

/// Device nodes that are not on the list of ordinary ones.
fn unexpected(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let devices = entries.filter(|entry| {
        let kind = entry.metadata().map(|metadata| metadata.file_type());
        kind.is_ok_and(|kind| kind.is_block_device() || kind.is_char_device())
    });
    let names = devices.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !ORDINARY.contains(&name.as_str())).collect()
}
