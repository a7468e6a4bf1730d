//! What the host asks about processes that exist.

use belljar_protocol::v1::{Acknowledge, Attach, Channel, Input, Kill, ProcessList, kill};
use rustix::process::Signal;

use super::start::window_size;
use super::{Listener, Process};
use crate::agent::Agent;
use crate::connection::Use;
use crate::failure::{Problem, Result, invalid};
use crate::tree::Scope;

impl Agent {
    /// The record of a process by the host's id; one that never started does not count.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let known = |process: &Process| process.name == name && process.not_started.is_none();
        self.processes
            .iter()
            .find(|(_, process)| known(process) && !process.forgotten)
            .map(|(key, _)| key)
    }

    fn known(&mut self, name: &str) -> Result<(u32, &mut Process)> {
        let key = self.find(name);
        key.and_then(|key| Some((key, self.processes.get_mut(key)?)))
            .ok_or_else(|| Problem::new("process-not-found", "").about(name.as_bytes()))
    }

    pub(super) fn running(&mut self, name: &str) -> Result<&mut Process> {
        let (_, process) = self.known(name)?;
        if process.is_running() {
            Ok(process)
        } else {
            Err(Problem::new("not-running", "the process has ended").about(name.as_bytes()))
        }
    }

    /// Gives the process to another stream; what the host says it has is acknowledged by that.
    pub(crate) fn attach(&mut self, connection: u32, stream: u64, attach: &Attach) -> Result {
        let (key, process) = self.known(&attach.process)?;
        let offsets = [attach.stdout_offset, attach.stderr_offset];
        for (channel, offset) in process.channels.iter_mut().zip(offsets) {
            channel.kept.release_below(offset);
        }
        let sent = process.channels.each_ref().map(|channel| channel.kept.start());
        // The new stream is told how far input came, and then how far the target is.
        process.input_told = 0;
        let before = process.listener.replace(Listener::new(connection, stream, sent));
        if let Some(before) = before
            && let Some(old) = self.connections.get_mut(before.connection)
        {
            old.streams.remove(before.stream);
            if !before.told_close {
                let problem = Problem::new("taken-over", "another stream was attached");
                old.send(before.stream, problem);
            }
        }
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.streams.insert(stream, Use::Process(key));
        }
        self.dirty.push(key);
        Ok(())
    }

    pub(crate) fn acknowledge(&mut self, key: u32, acknowledge: &Acknowledge) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let index = match acknowledge.channel() {
            Channel::Stdout => 0,
            Channel::Stderr => 1,
            Channel::Stdin => return,
        };
        // Not more than was sent: what the host has never seen is not given up because of a wrong number.
        let sent = process.listener.as_ref().map_or(0, |listener| listener.sent[index]);
        process.channels[index].kept.release_below(acknowledge.offset.min(sent));
        self.dirty.push(key);
    }

    pub(crate) fn input(&mut self, connection: u32, stream: u64, key: u32, input: &Input) {
        let window = self.window();
        let Some(process) = self.processes.get_mut(key) else { return };
        if process.input.waiting() + input.data.len() > window + belljar_protocol::MAX_CHUNK {
            process.listener = None;
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.streams.remove(stream);
                let problem = Problem::new("window-exceeded", "more input than was acknowledged");
                connection.send(stream, problem);
            }
            return;
        }
        process.input.push(&input.data, input.close);
        self.on_input(key);
    }

    /// The target of input may take more.
    pub(crate) fn on_input(&mut self, key: u32) {
        if let Some(process) = self.processes.get_mut(key) {
            process.input.pump();
            self.dirty.push(key);
        }
    }

    pub(crate) fn kill(&mut self, kill: &Kill) -> Result {
        let now = self.now;
        if kill.scope() == kill::Scope::Tree {
            if ![0, Signal::KILL.as_raw()].contains(&kill.signal) {
                return Err(invalid("a tree can only be killed"));
            }
            let (_, process) = self.known(&kill.process)?;
            process.kill_tree(now);
            return Ok(());
        }
        let scope = match kill.scope() {
            kill::Scope::Leader => Scope::Leader,
            _ => Scope::Group,
        };
        if !(1..=64).contains(&kill.signal) {
            return Err(invalid("there is no such signal"));
        }
        let process = self.running(&kill.process)?;
        match &process.tree {
            Some(tree) => tree
                .signal(process.pid, scope, kill.signal)
                .map_err(|error| Problem::system("signal-failed", "kill", &error)),
            None => Ok(()),
        }
    }

    pub(crate) fn resize(&mut self, name: &str, rows: u32, columns: u32) -> Result {
        let (_, process) = self.known(name)?;
        let terminal = process.terminal().ok_or_else(|| invalid("the process has no terminal"))?;
        rustix::termios::tcsetwinsize(terminal, window_size(rows, columns))
            .map_err(|errno| Problem::system("io-error", "resize", &errno.into()))
    }

    pub(crate) fn forget(&mut self, name: &str) -> Result {
        let (key, process) = self.known(name)?;
        if process.is_running() {
            return Err(Problem::new("still-running", "only what has ended can be forgotten"));
        }
        process.forgotten = true;
        if let Some(listener) = process.listener.take()
            && let Some(connection) = self.connections.get_mut(listener.connection)
        {
            connection.streams.remove(listener.stream);
        }
        self.dirty.push(key);
        Ok(())
    }

    pub(crate) fn list_processes(&self) -> ProcessList {
        let shown = |process: &&Process| process.not_started.is_none() && !process.forgotten;
        ProcessList {
            processes: self.processes.values().filter(shown).map(Process::state).collect(),
        }
    }
}
