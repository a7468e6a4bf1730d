//! One test, every mode.

use std::io::Write;

use serde_json::Value;

use crate::{Dockerd, Installation, Mode, Turn};

/// Makes tests of functions that take an [`Installation`]: each runs as root and rootless and ends with a leak check.
///
/// ```ignore
/// matrix! {
///     a_mount_is_refused,
///     alone it_is_fast, // measures time, so no other test may run beside it
///     everywhere nothing_leaks, // also with sandboxes in a container engine
///     docker the_engine_is_used_well, // only there
///     podman its_socket_is_used_well, // only with that of Podman
///     engines every_engine_is_used_well, // there and in Podman
///     walls nothing_gets_out, // everywhere, in Podman, and on OCI runtimes
///     runtimes the_runtime_is_used_well, // only on those
///     engineless no_container_is_needed, // on those, and as root and rootless
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
    (everywhere $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode root Root shared $name);
            $crate::matrix!(@mode rootless Rootless shared $name);
            $crate::matrix!(@mode docker Docker shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (walls $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode root Root shared $name);
            $crate::matrix!(@mode rootless Rootless shared $name);
            $crate::matrix!(@mode docker Docker shared $name);
            $crate::matrix!(@mode podman Podman shared $name);
            $crate::matrix!(@mode runc Runc shared $name);
            $crate::matrix!(@mode runsc Runsc shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (engineless $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode root Root shared $name);
            $crate::matrix!(@mode rootless Rootless shared $name);
            $crate::matrix!(@mode runc Runc shared $name);
            $crate::matrix!(@mode runsc Runsc shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (runtimes $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode runc Runc shared $name);
            $crate::matrix!(@mode runsc Runsc shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (engines $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode docker Docker shared $name);
            $crate::matrix!(@mode podman Podman shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (docker $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode docker Docker shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    (podman $name:ident, $($rest:tt)*) => {
        mod $name {
            $crate::matrix!(@mode podman Podman shared $name);
        }
        $crate::matrix!($($rest)*);
    };
    ($name:ident, $($rest:tt)*) => {
        $crate::matrix!(@one shared $name);
        $crate::matrix!($($rest)*);
    };
    (@one $turn:ident $name:ident) => {
        mod $name {
            $crate::matrix!(@mode root Root $turn $name);
            $crate::matrix!(@mode rootless Rootless $turn $name);
        }
    };
    (@mode $word:ident $mode:ident $turn:ident $name:ident) => {
        #[test]
        fn $word() {
            let test = concat!(module_path!(), "::", stringify!($word));
            $crate::run_in($crate::Mode::$mode, test, $crate::Turn::$turn, super::$name);
        }
    };
}

/// Runs a test's body with an installation in `mode`, then destroys its sandboxes and looks for leaks.
pub fn run_in(mode: Mode, test: &str, turn: fn() -> Turn, body: fn(&Installation)) {
    if let Some(reason) = mode.unavailable() {
        return skip(test, &reason);
    }
    let _turn = turn();
    to_the_end(&Installation::new(mode), body);
}

/// The same in an engine with a configuration of the test's own.
pub fn run_in_engine(test: &str, configuration: &Value, body: fn(&Installation)) {
    if let Some(reason) = Mode::Docker.unavailable() {
        return skip(test, &reason);
    }
    let _turn = Turn::shared();
    let daemon = Dockerd::start_with(configuration).expect("an engine starts");
    to_the_end(&Installation::in_engine(daemon), body);
}

fn to_the_end(installation: &Installation, body: fn(&Installation)) {
    body(installation);
    installation.destroy_all();
    installation.assert_nothing_left();
}

/// Says that a test did not run. Written past the test runner's capture, which would hide it in a passed test.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
