//! `belljar policy scan`: what a reader of Python code would look at twice.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use belljar_codes::Code;
use belljar_policy::scan::{MAX_CODE_BYTES, python};
use belljar_policy::shown;

use super::{Done, inert};
use crate::failure::Failure;
use crate::output::{print, print_json};

pub(super) fn scan(path: &Path, json: bool) -> Result<Done, Failure> {
    let findings = python(&text(path)?);
    if json {
        print_json(&findings)?;
    } else {
        let name = inert(&path.display().to_string());
        let lines =
            findings.iter().map(|finding| format!("{name}: {}\n", inert(&finding.to_string())));
        print(&lines.collect::<String>())?;
    }
    Ok(Done::Success)
}

/// No more of a file than tells that it is too long; bytes that are no text are a matter for the scan.
fn text(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        let message = format!("`{}` cannot be read", shown(&path.to_string_lossy()));
        Failure::new(Code::InvalidArgument, message)
            .caused_by(&error)
            .with_remedy("name a file with Python code")
    };
    let mut bytes = Vec::new();
    let bound = u64::try_from(MAX_CODE_BYTES).unwrap_or(u64::MAX).saturating_mul(2);
    File::open(path)
        .and_then(|file| file.take(bound).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
