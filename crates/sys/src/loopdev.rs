//! Loop devices: a file as a block device.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

const LOOP_CTL_ADD: libc::c_ulong = 0x4C80;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const BLOCK_SIZE: u32 = 4096;
/// Another process can take the free device between asking and configuring; it is asked again this often.
const ATTEMPTS: usize = 64;
/// As many devices are made in a row before the kernel is asked whether there are free ones again.
const MOST_UNASKED: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// A configured device. It lets go of its file by itself when the last user (this handle, a mount) is gone.
#[derive(Debug)]
pub struct LoopDevice {
    pub path: CString,
    /// The device itself, open for reading and writing.
    pub device: File,
}

/// Finds devices that are free.
///
/// The kernel, when asked for one, looks at all that are in use, one after the other. So the number behind the last one is
/// tried first. Where there is none of that number, it is made, as long as none behind the kernel's last answer was there.
#[derive(Debug, Default)]
pub struct Finder {
    next: Option<u32>,
    /// How many may be made without asking for one that is free again.
    unasked: u32,
}

/// What became of an attempt to use a device.
enum Tried {
    Attached(LoopDevice),
    Taken,
    Missing,
}

impl Finder {
    /// Makes a block device out of a file that is open for reading and writing.
    pub fn attach(&mut self, file: BorrowedFd<'_>) -> io::Result<LoopDevice> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        if let Some(number) = self.next.take() {
            // Whatever is wrong with a guess, the kernel may know a better one.
            let mut tried = attach_at(number, file).unwrap_or(Tried::Taken);
            if matches!(tried, Tried::Missing) && self.unasked > 0 {
                self.unasked -= 1;
                // SAFETY: this request takes a number.
                unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_ADD as _, number) };
                tried = attach_at(number, file).unwrap_or(Tried::Taken);
            } else {
                self.unasked = 0;
            }
            if let Tried::Attached(device) = tried {
                self.next = Some(number + 1);
                return Ok(device);
            }
        }
        for _ in 0..ATTEMPTS {
            // SAFETY: this request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
            match attach_at(number, file)? {
                Tried::Attached(device) => {
                    (self.next, self.unasked) = (Some(number + 1), MOST_UNASKED);
                    return Ok(device);
                }
                Tried::Taken => {}
                Tried::Missing => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
}

fn attach_at(number: u32, file: BorrowedFd<'_>) -> io::Result<Tried> {
    let path = format!("/dev/loop{number}");
    let device = match File::options().read(true).write(true).open(&path) {
        Ok(device) => device,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => {
            return Ok(Tried::Missing);
        }
        // Some kernels let nobody open for writing what is mounted.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(Tried::Taken),
        Err(error) => return Err(error),
    };
    // SAFETY: all-zero is a valid value of this structure of integers.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.file = file.as_raw_fd() as u32;
    config.block_size = BLOCK_SIZE;
    config.info.flags = LO_FLAGS_AUTOCLEAR;
    // SAFETY: the structure is initialised, of the size asserted above, and copied during the call.
    let result =
        unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, ptr::from_ref(&config)) };
    if result == 0 {
        let path = CString::new(path).expect("a device path contains no NUL");
        return Ok(Tried::Attached(LoopDevice { path, device }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY) => Ok(Tried::Taken),
        _ => Err(error),
    }
}
