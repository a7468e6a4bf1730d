//! Other doors into the kernel: a filter that looks only at 64-bit call numbers would leave them open.

use std::ffi::OsString;

use crate::raw::{self, call};
use crate::report::Report;

/// x32 calls are 64-bit calls with this bit in their number.
const X32: libc::c_long = 0x4000_0000;

/// Makes harmless and forbidden calls through the 32-bit gate and with x32 numbers.
pub(super) fn foreign_entry(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("foreign-entry");
    #[cfg(target_arch = "x86_64")]
    {
        const GETPID_32: i32 = 20;
        const UNSHARE_32: i32 = 310;
        let user = libc::CLONE_NEWUSER;
        report.attempt("int 0x80: getpid", raw::in_child(|child| child.call_32bit(GETPID_32, 0)));
        report.attempt(
            "int 0x80: unshare(user)",
            raw::in_child(|child| child.call_32bit(UNSHARE_32, user)),
        );
    }
    let user = [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0];
    report.attempt("x32: getpid", call(X32 | libc::SYS_getpid, [0; 6]));
    report.attempt("x32: unshare(user)", call(X32 | libc::SYS_unshare, user));
    report.attempt("x32: ptrace(own number)", call(X32 | 521, [0; 6]));
    report.twin("getpid", call(libc::SYS_getpid, [0; 6]));
    report.twin(
        "unshare(files)",
        call(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0]),
    );
    // The number after the last call of any kernel: unknown calls are refused, not fatal, so that programs can ask.
    report.fact("unknown_call", format!("{:?}", call(4000, [0; 6])));
    Ok(report)
}
