//! Disk space, inodes, and files that claim more than they hold.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{argument, c_text};
use crate::errno;
use crate::raw;
use crate::report::Report;

const BLOCK: usize = 1 << 20;

/// Writes one file in DIRECTORY until refused or BYTES are in it.
pub(super) fn fill(arguments: &[OsString]) -> Result<Report, String> {
    let directory = directory(arguments)?;
    let most: u64 = argument(arguments, 1, "bytes")?;
    let mut report = Report::new("fill");
    record_space(&mut report, "before", &directory)?;
    let path = directory.join("belljar-probe-fill");
    let block: Vec<u8> = (0..BLOCK).map(|index| ((index * 31) >> 3) as u8).collect();
    let mut written = 0;
    let outcome = File::create(&path).and_then(|mut file| {
        while written < most {
            written += file.write(&block)? as u64;
        }
        file.sync_all()
    });
    report.fact("written", written);
    record(&mut report, outcome);
    record_space(&mut report, "after", &directory)?;
    let removed = fs::remove_file(&path);
    report.twin("remove, then write again", removed.and_then(|()| fs::write(&path, "x")));
    let _ = fs::remove_file(&path);
    Ok(report)
}

/// Makes a file of BYTES by truncation, then reserves them on disk.
pub(super) fn sparse(arguments: &[OsString]) -> Result<Report, String> {
    let directory = directory(arguments)?;
    let most: u64 = argument(arguments, 1, "bytes")?;
    let mut report = Report::new("sparse");
    record_space(&mut report, "before", &directory)?;
    let path = directory.join("belljar-probe-sparse");
    let file = File::create(&path).map_err(|error| error.to_string())?;
    let truncated = file.set_len(most);
    report.fact("truncate", name(&truncated));
    report.fact("truncate_blocks", file.metadata().map_or(0, |metadata| metadata.blocks()));
    let _ = file.set_len(0);
    let allocated = raw::allocate(&file, most);
    report.fact("allocate", name(&allocated));
    report.fact("allocate_bytes", file.metadata().map_or(0, |metadata| metadata.blocks() * 512));
    record_space(&mut report, "after", &directory)?;
    drop(file);
    let _ = fs::remove_file(&path);
    let small = File::create(&path).and_then(|file| raw::allocate(&file, BLOCK as u64));
    report.twin("reserve one mebibyte", small);
    let _ = fs::remove_file(&path);
    Ok(report)
}

/// Makes empty files in DIRECTORY until refused or until COUNT.
pub(super) fn inodes(arguments: &[OsString]) -> Result<Report, String> {
    let directory = directory(arguments)?;
    let most: u64 = argument(arguments, 1, "a count")?;
    let mut report = Report::new("inodes");
    let folder = directory.join("belljar-probe-inodes");
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut made = 0;
    let outcome = (0..most)
        .try_for_each(|number| File::create(folder.join(number.to_string())).map(|_| made += 1));
    report.fact("made", made);
    record(&mut report, outcome);
    report.twin("remove them all", fs::remove_dir_all(&folder));
    Ok(report)
}

fn directory(arguments: &[OsString]) -> Result<PathBuf, String> {
    arguments.first().map(PathBuf::from).ok_or_else(|| "argument 1 must be a directory".to_owned())
}

fn record(report: &mut Report, outcome: io::Result<()>) {
    report.fact("outcome", name(&outcome));
}

fn name(outcome: &io::Result<()>) -> &'static str {
    match outcome {
        Ok(()) => "allowed",
        Err(error) => error.raw_os_error().map_or("?", errno::name),
    }
}

fn record_space(report: &mut Report, when: &str, directory: &Path) -> Result<(), String> {
    let space = raw::space(&c_text(directory.as_os_str())?).map_err(|error| error.to_string())?;
    report.fact(&format!("free_bytes_{when}"), space.free_bytes);
    report.fact(&format!("total_bytes_{when}"), space.total_bytes);
    report.fact(&format!("free_inodes_{when}"), space.free_inodes);
    Ok(())
}
