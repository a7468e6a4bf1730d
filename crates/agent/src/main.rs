//! The agent: PID 1 inside a sandbox.
//!
//! Its duties: reap every orphan; run, feed, watch and kill what the host asks for; hand back exit codes and output that
//! the workload cannot forge; leave when the lease ends. One thread, one epoll loop; everything bounded; nothing that
//! comes from the workload is trusted, and nothing that comes from the socket makes it panic.
//!
//! The same file is the keeper outside of walls that no listening socket passes (see [`keep`]), and the
//! way in for a host that has no socket in common with the agent (see [`relay`]). Started as `belljar-tool`, it calls tools of the host (see [`tool`]); started under any other name, it
//! stands in for a program that the sandbox may not have (see [`denied`]).
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, clippy::print_stdout)] // Before there is a host to tell, and for who runs `belljar-tool`.

mod agent;
mod arguments;
mod connection;
mod crowd;
mod denied;
mod failure;
mod files;
mod keep;
mod lease;
mod memory;
mod mounts;
mod oom_score;
mod owners;
mod poller;
mod prepare;
mod process;
mod procfs;
mod relay;
mod remains;
mod request;
mod service;
mod setup;
mod table;
mod tool;
mod tools;
mod tree;
mod tunnel;

use std::process::ExitCode;

use arguments::{Arguments, Descriptors};

fn main() -> ExitCode {
    match Arguments::parse(std::env::args_os()) {
        Arguments::Serve(descriptors) => match serve(&descriptors) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("belljar-agent: {error}");
                ExitCode::FAILURE
            }
        },
        Arguments::Keep { descriptors, arguments } => match keep::keep(&descriptors, &arguments) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("belljar-agent: {error}");
                ExitCode::FAILURE
            }
        },
        Arguments::Relay { door } => relay::run(door),
        Arguments::Tool(arguments) => tool::run(&arguments),
        Arguments::StandIn { name } => denied::report(&name),
    }
}

/// The phases. Everything before the last is synchronous and happens before anyone can connect.
fn serve(descriptors: &Descriptors) -> std::io::Result<()> {
    let mut inherited = prepare::take_descriptors(descriptors)?;
    let ready = inherited.ready.take();
    prepare::become_user(descriptors.identity)?;
    let oom_score = oom_score::OomScore::open();
    prepare::shield()?;
    let files = prepare::raise_descriptor_limit()?;
    let signals = prepare::own_signals()?;
    prepare::adopt_orphans()?;
    let agent = agent::Agent::new(inherited, oom_score, files, signals)?;
    if let Some(ready) = ready {
        rustix::io::write(ready, b"r")?;
    }
    agent.run()
}
