//! Landlock as the second wall.
//!
//! The kernel does not show a process its own Landlock layers, but it allows only sixteen: a process that can add
//! sixteen had none.

use std::ffi::OsString;
use std::fs;

use crate::raw::{self, Ended};
use crate::report::Report;

const LAYERS: i64 = 16;
const VERSION: usize = 1;
const EXECUTE: u64 = 1;

/// `add(layer 16)` is refused where at least one layer was there before.
pub(super) fn landlock(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("landlock");
    let version = raw::call(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0, 0]);
    report.fact("version", if let Ended::Returned(version) = version { version } else { 0 });

    let added = raw::in_child(|child| {
        // Permitting nothing but ever less: each layer handles one right that this child does not use again.
        child.call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0])?;
        for layer in 0..LAYERS {
            let mut handled = EXECUTE;
            let rules = [raw::place(&mut handled), size_of::<u64>(), 0, 0, 0, 0];
            let ruleset = child.call(libc::SYS_landlock_create_ruleset, rules)? as usize;
            if child.call(libc::SYS_landlock_restrict_self, [ruleset, 0, 0, 0, 0, 0]).is_err() {
                return Ok(layer);
            }
            child.call(libc::SYS_close, [ruleset, 0, 0, 0, 0, 0])?;
        }
        Ok(LAYERS)
    });
    let (ended, layers) = match added {
        Ended::Returned(LAYERS) => (Ended::Returned(0), Some(0)),
        Ended::Returned(added) => (Ended::Failed(libc::EPERM), Some(LAYERS - added)),
        other => (other, None),
    };
    report.attempt("add(layer 16)", ended);
    report.fact("layers", layers);
    report.twin("write(/tmp)", fs::write("/tmp/belljar-probe-landlock", "x"));
    Ok(report)
}
