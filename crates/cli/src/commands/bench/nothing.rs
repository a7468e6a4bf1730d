//! The smallest program there is: what starting it takes, starting any program takes.
//!
//! `true` is not that. Most of its time goes into its loader, which asks the processor what it can do some seventy times
//! (`CPUID`); in a virtual machine each of those questions leaves the machine.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// `exit(0)`, and the number by which ELF knows the processor.
#[cfg(target_arch = "x86_64")]
const PROGRAM: (&[u8], u16) = (&[0x31, 0xff, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05], 62);
#[cfg(target_arch = "aarch64")]
const PROGRAM: (&[u8], u16) = (&[0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4], 183);

const ELF_HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;
/// Where it is in memory.
const ADDRESS: u64 = 0x40_0000;

/// The file, to be made executable.
pub(super) fn program() -> Vec<u8> {
    let (code, machine) = PROGRAM;
    let begin = u64::from(ELF_HEADER + PROGRAM_HEADER);
    let size = begin + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec(); // 64 bits, little endian, version 1
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(&2_u16.to_le_bytes()); // a program
    put(&machine.to_le_bytes());
    put(&1_u32.to_le_bytes());
    put(&(ADDRESS + begin).to_le_bytes()); // the first instruction
    put(&u64::from(ELF_HEADER).to_le_bytes()); // the program header
    put(&0_u64.to_le_bytes()); // no sections
    put(&0_u32.to_le_bytes());
    for number in [ELF_HEADER, PROGRAM_HEADER, 1, 0, 0, 0] {
        put(&number.to_le_bytes());
    }
    put(&1_u32.to_le_bytes()); // to be loaded
    put(&5_u32.to_le_bytes()); // to be read and run
    for number in [0, ADDRESS, ADDRESS, size, size, 0x1000] {
        put(&u64::to_le_bytes(number));
    }
    put(code);
    file
}

/// Puts it into a directory of this host.
pub(super) fn put_into(directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join("nothing");
    fs::write(&path, program())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn it_runs_and_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = put_into(directory.path()).unwrap();
        let output = loop {
            match Command::new(&path).output() {
                // Another test's child may still have it open for writing.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                output => break output.unwrap(),
            }
        };
        assert!(output.status.success());
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
}
