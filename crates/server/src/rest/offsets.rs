//! Places in the two channels of a process's output, written as `STDOUT,STDERR`.

use belljar_api::v1;

use super::stream::Named;
use crate::problem::{Problem, Result};

/// Where a reader is: what comes next begins here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position(v1::Offsets);

impl Position {
    /// `STDOUT,STDERR`, or one number for both.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| text.trim().parse().ok();
        let parsed = match text.split_once(',') {
            Some((stdout, stderr)) => number(stdout).zip(number(stderr)),
            None => number(text).map(|both| (both, both)),
        };
        let (stdout, stderr) = parsed.ok_or_else(|| {
            Problem::invalid(format!("`since` is `{}`", belljar_policy::shown(text)))
                .with_remedy("write one offset, or `STDOUT,STDERR`, as event ids have it")
        })?;
        Ok(Self(v1::Offsets { stdout, stderr }))
    }

    pub(super) fn offsets(self) -> v1::Offsets {
        self.0
    }

    /// Moves behind a piece of output.
    pub(super) fn pass(&mut self, output: &v1::ProcessOutput) {
        let end = output.offset + output.data.len() as u64;
        match output.channel() {
            v1::Channel::Stdout => self.0.stdout = end,
            v1::Channel::Stderr => self.0.stderr = end,
            v1::Channel::Unspecified => {}
        }
    }

    /// Moves behind a piece and names its event after the place that follows.
    pub(super) fn name(&mut self, output: &v1::ProcessOutput) -> Named {
        if output.started.is_some() {
            return Named { name: "started", id: None };
        }
        if output.ended.is_some() {
            return Named { name: "ended", id: None };
        }
        self.pass(output);
        Named { name: "output", id: Some(self.to_string()) }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.0.stdout, self.0.stderr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        let check = |text: &str, stdout, stderr| {
            let position = Position::parse(text).unwrap();
            assert_eq!(position.offsets(), v1::Offsets { stdout, stderr });
        };
        check("7", 7, 7);
        check("7,9", 7, 9);
        check(&Position(v1::Offsets { stdout: 1, stderr: 2 }).to_string(), 1, 2);
        for bad in ["", "x", "1,", "-1", "1,2,3"] {
            assert!(Position::parse(bad).is_err(), "{bad}");
        }
    }
}
