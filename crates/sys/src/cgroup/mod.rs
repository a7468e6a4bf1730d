//! Control groups of both versions behind one face.
//!
//! Hosts differ: version 2 everywhere, version 1 everywhere, or both at once with the controllers on the old side.
//! [`Cgroups::detect`] finds where a group can be made for each controller; a [`Group`] is then a directory of the
//! same name in each of those places. Not here: which limits, and what to do where a controller is missing.

mod detect;
mod group;

pub use group::{Counters, Group, Limits};

use std::path::PathBuf;

/// The controllers that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Memory,
    Cpu,
    Pids,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// A directory in which groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub version: Version,
    pub base: PathBuf,
}

/// Where this host lets the caller make groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    pub memory: Option<Branch>,
    pub cpu: Option<Branch>,
    pub pids: Option<Branch>,
    /// The version 2 hierarchy, with or without controllers: it can kill and freeze whole groups.
    pub unified: Option<PathBuf>,
}

impl Cgroups {
    #[must_use]
    pub fn branch(&self, controller: Controller) -> Option<&Branch> {
        match controller {
            Controller::Memory => self.memory.as_ref(),
            Controller::Cpu => self.cpu.as_ref(),
            Controller::Pids => self.pids.as_ref(),
        }
    }

    /// Whether every limit is kept by version 1, so that limits go with a group that is given another name.
    #[must_use]
    pub fn limits_by_version_1(&self) -> bool {
        let branches = [&self.memory, &self.cpu, &self.pids].into_iter().flatten();
        branches.into_iter().all(|branch| branch.version == Version::V1)
    }

    /// Every directory that groups are made in, each once.
    #[must_use]
    pub fn bases(&self) -> Vec<(Version, PathBuf)> {
        let mut bases: Vec<(Version, PathBuf)> = Vec::new();
        let branches = [&self.memory, &self.cpu, &self.pids].into_iter().flatten();
        for branch in branches {
            let base = (branch.version, branch.base.clone());
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        if let Some(unified) = &self.unified {
            let base = (Version::V2, unified.clone());
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        bases
    }
}
