//! One test, every mode.

use std::io::Write;

use crate::{Installation, Mode, Turn};

/// Makes tests of functions that take an [`Installation`]: each runs once per [`Mode`] and ends with a leak check.
///
/// ```ignore
/// matrix! {
///     a_mount_is_refused,
///     alone it_is_fast, // measures time, so no other test may run beside it
/// }
///
/// fn a_mount_is_refused(belljar: &Installation) { … }
/// ```
#[macro_export]
macro_rules! matrix {
    () => {};
    (alone $name:ident, $($rest:tt)*) => {
        $crate::matrix!(@one alone $name);
        $crate::matrix!($($rest)*);
    };
    ($name:ident, $($rest:tt)*) => {
        $crate::matrix!(@one shared $name);
        $crate::matrix!($($rest)*);
    };
    (@one $turn:ident $name:ident) => {
        mod $name {
            #[test]
            fn root() {
                let test = concat!(module_path!(), "::root");
                $crate::run_in($crate::Mode::Root, test, $crate::Turn::$turn, super::$name);
            }

            #[test]
            fn rootless() {
                let test = concat!(module_path!(), "::rootless");
                $crate::run_in($crate::Mode::Rootless, test, $crate::Turn::$turn, super::$name);
            }
        }
    };
}

/// Runs a test's body with an installation in `mode`, then destroys its sandboxes and looks for leaks.
pub fn run_in(mode: Mode, test: &str, turn: fn() -> Turn, body: fn(&Installation)) {
    if let Some(reason) = mode.unavailable() {
        return skip(test, &reason);
    }
    let _turn = turn();
    let installation = Installation::new(mode);
    body(&installation);
    installation.destroy_all();
    installation.assert_nothing_left();
}

/// Says that a test did not run. Written past the test runner's capture, which would hide it in a passed test.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
