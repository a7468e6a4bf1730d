//! Files that live in memory and have a fixed content, or a fixed size.

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// An executable file with this content that nobody can ever write to again.
pub fn sealed_executable(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let wanted = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC and make every memory file executable.
    let file =
        memfd_create(name, wanted | MemfdFlags::EXEC).or_else(|_| memfd_create(name, wanted))?;
    let mut file = std::fs::File::from(file);
    file.write_all(content)?;
    let file = OwnedFd::from(file);
    fcntl_add_seals(
        &file,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file)
}

/// An empty file that never holds more than this many bytes: what does not fit cannot be written.
pub fn bounded(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, size)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_there_and_cannot_be_changed() {
        let file = sealed_executable(c"test", b"content").unwrap();
        let mut buffer = [0; 16];
        let length = rustix::io::pread(&file, &mut buffer[..], 0).unwrap();
        assert_eq!(&buffer[..length], b"content");
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn a_bounded_file_takes_what_fits() {
        let file = bounded(c"test", 4).unwrap();
        assert_eq!(rustix::io::write(&file, b"abcd"), Ok(4));
        assert_eq!(rustix::io::write(&file, b"e"), Err(rustix::io::Errno::PERM));
    }
}
