//! Turning what failed into what is told.

use std::io;

use belljar_sys::child::{Failed, Plan};

use crate::wire::Failure;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Names the stage in which an I/O error happened.
pub(crate) trait Stage<T> {
    fn stage(self, stage: &str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Stage<T> for std::result::Result<T, E> {
    fn stage(self, stage: &str) -> Result<T> {
        self.map_err(|error| Failure::new(stage, errno(&error.into())))
    }
}

impl Failure {
    pub(crate) fn new(stage: &str, errno: i32) -> Self {
        Self { stage: stage.to_owned(), errno, path: None }
    }

    /// The failure of a step, with what that step was about.
    pub(crate) fn of_step(plan: &Plan, failed: Failed) -> Self {
        let (stage, path) =
            plan.steps.get(failed.step).map_or(("unknown-step", None), |step| step.describe());
        Self {
            stage: stage.to_owned(),
            errno: failed.errno,
            path: path.map(|path| path.to_bytes().to_vec()),
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    let fallback = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => rustix::io::Errno::INVAL,
        io::ErrorKind::Unsupported => rustix::io::Errno::NOSYS,
        _ => rustix::io::Errno::IO,
    };
    error.raw_os_error().unwrap_or(fallback.raw_os_error())
}
