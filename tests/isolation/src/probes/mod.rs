//! The probes, one module per kind of wall.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use crate::report::Report;

mod agent;
mod calls;
mod cgroups;
mod devices;
mod entry;
mod files;
mod kernel;
mod landlock;
mod mounts;
mod namespaces;
mod network;
mod privileges;
mod processes;
mod secrets;
mod sockets;
mod space;
mod terminal;
mod usage;

/// One probe. `run` takes the arguments after the name; an error says what is wrong with them.
#[derive(Debug)]
pub struct Probe {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&[OsString]) -> Result<Report, String>,
}

macro_rules! probes {
    ($($name:literal => $run:path, $about:literal;)+) => {
        /// Every probe.
        pub const ALL: &[Probe] = &[$(Probe { name: $name, about: $about, run: $run },)+];
    };
}

probes! {
    "remount" => mounts::remount, "PATH...: make read-only mounts writable";
    "climb" => mounts::climb, "climb out of a root of one's own, and above the sandbox's";
    "mount" => mounts::mount, "mount anything, by the old and the new interface";
    "unshare" => namespaces::unshare, "make namespaces";
    "setns" => namespaces::setns, "enter namespaces of other processes";
    "agent" => agent::reach, "read, trace and rule the agent";
    "signal-agent" => agent::signal, "send signals to the agent";
    "hunt" => agent::hunt, "MILLISECONDS: trace helpers of the agent while they live";
    "kernel-interfaces" => calls::kernel_interfaces, "bpf, perf, io_uring, userfaultfd, keys";
    "machine-control" => calls::machine_control, "modules, kexec, reboot, swap, ports, clocks";
    "execution-domain" => calls::execution_domain, "personality, local descriptor table";
    "foreign-entry" => entry::foreign_entry, "32-bit and x32 system calls";
    "devices" => devices::devices, "make and open devices";
    "gpu" => devices::gpu, "find GPU devices";
    "kernel-settings" => kernel::settings, "write kernel settings";
    "kernel-pointers" => kernel::pointers, "read kernel addresses and messages";
    "cgroups" => cgroups::cgroups, "change limits through control groups";
    "privileges" => privileges::privileges, "gain users, groups and capabilities";
    "identity" => privileges::identity, "say who this process is";
    "planted" => privileges::planted, "PROGRAM: run a planted privileged program";
    "terminal" => terminal::terminal, "inject input into a terminal";
    "sockets" => sockets::sockets, "open sockets of unusual families";
    "network" => network::network, "PORT NAME: reach listeners of the host";
    "secrets" => secrets::secrets, "PATH...: find what belongs to the host";
    "writes" => files::writes, "PATH...: write outside the writable places";
    "descriptors" => files::descriptors, "find inherited descriptors";
    "landlock" => landlock::landlock, "count the layers of Landlock";
    "fork-bomb" => processes::fork_bomb, "COUNT [hold]: fork until refused";
    "thread-bomb" => processes::thread_bomb, "COUNT: start threads until refused";
    "daemons" => processes::daemons, "COUNT: leave daemons behind";
    "orphans" => processes::orphans, "COUNT: leave dead children to PID 1";
    "stubborn" => processes::stubborn, "ignore every polite signal";
    "census" => processes::census, "count processes and zombies";
    "memory" => usage::memory, "BYTES: use memory up to a bound";
    "spin" => usage::spin, "MILLISECONDS THREADS: use the processor";
    "flood" => usage::flood, "BYTES: write to standard output; the report goes to standard error";
    "arguments" => usage::arguments, "...: count arguments and environment";
    "fill" => space::fill, "DIRECTORY BYTES: write one file until refused";
    "sparse" => space::sparse, "DIRECTORY BYTES: make a huge file without writing it";
    "inodes" => space::inodes, "DIRECTORY COUNT: make empty files until refused";
}

/// Whether PID 1 is the agent. Probes fill disks, fork without end and write to system files, so they ask first.
#[must_use]
pub fn in_sandbox() -> bool {
    ["/proc/1/comm", "/proc/1/cmdline"]
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .any(|name| name.windows(7).any(|part| part == b"belljar"))
}

/// Whether a probe does something to PID 1: outside a sandbox that is the host's own, and no variable permits it.
#[must_use]
pub fn aims_at_init(name: &str) -> bool {
    ["agent", "signal-agent", "hunt", "setns", "daemons", "orphans"].contains(&name)
}

/// The argument at `index`, as a number or whatever it shall be.
fn argument<T: FromStr>(arguments: &[OsString], index: usize, what: &str) -> Result<T, String> {
    arguments
        .get(index)
        .and_then(|argument| argument.to_str())
        .and_then(|argument| argument.parse().ok())
        .ok_or_else(|| format!("argument {} must be {what}", index + 1))
}

fn c_text(text: &OsStr) -> Result<CString, String> {
    CString::new(text.as_bytes()).map_err(|_| format!("{text:?} contains a NUL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_names_are_unique_words() {
        let mut seen = std::collections::BTreeSet::new();
        for probe in ALL {
            assert!(seen.insert(probe.name), "{} appears twice", probe.name);
            assert!(probe.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
        }
    }

    #[test]
    fn a_missing_or_odd_argument_is_named() {
        for (arguments, index) in [(vec![], 0), (vec![OsString::from("many")], 0)] {
            let refusal = argument::<u64>(&arguments, index, "a count");
            assert_eq!(refusal, Err("argument 1 must be a count".to_owned()));
        }
    }
}
