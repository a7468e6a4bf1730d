//! Interactive sessions, on a terminal that the test holds the other end of.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use support::Place;

/// A terminal with `belljar` on it.
struct Screen {
    keyboard: File,
    terminal: OwnedFd,
    /// As it was before anybody used it.
    before: Termios,
    shown: String,
    child: Child,
}

impl Screen {
    fn open(place: &Place, words: &[&str], rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        tcsetwinsize(&controller, size(rows, columns)).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let mut command = place.command(words);
        command
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap())
            .env("TERM", "dumb");
        let child = command.spawn().unwrap();
        Self { keyboard: File::from(controller), terminal, before, shown: String::new(), child }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until `text` was shown after what was waited for before.
    fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.shown.contains(text) {
            let count = self.keyboard.read(&mut buffer).unwrap();
            assert!(count > 0, "ended before `{text}` was shown: {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        let end = self.shown.find(text).unwrap() + text.len();
        self.shown.drain(..end);
    }

    fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.keyboard, size(rows, columns)).unwrap();
        // The kernel tells those whose controlling terminal this is; here it is only their input.
        kill_process(Pid::from_child(&self.child), Signal::WINCH).unwrap();
    }

    fn is_as_before(&self) {
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(self.before.local_modes, after.local_modes);
        assert_eq!(self.before.input_modes, after.input_modes);
        assert_eq!(self.before.output_modes, after.output_modes);
    }

    fn exit_status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn a_shell_has_a_terminal_of_the_same_size_and_gives_it_back() {
    let Some(place) = Place::with_sandboxes() else { return };
    let mut screen = Screen::open(&place, &["shell"], 33, 77);
    screen.type_keys("stty size; echo fin''ished\n");
    screen.wait_for("33 77");
    screen.wait_for("finished");
    screen.resize(40, 120);
    // The new size arrives when it arrives; the loop waits for it, not for time.
    screen
        .type_keys("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo resi''zed\n");
    screen.wait_for("resized");
    // Ctrl-C is a key that the sandbox's terminal turns into a signal.
    screen.type_keys(
        "(trap 'echo cau''ght; exit' INT; echo run''ning; while :; do sleep 0.1; done)\n",
    );
    screen.wait_for("running");
    screen.type_keys("\u{3}");
    screen.wait_for("caught");
    screen.type_keys("exit 3\n");
    assert_eq!(screen.exit_status(), Some(3));
    screen.is_as_before();
}

#[test]
fn the_terminal_is_given_back_when_we_are_told_to_end() {
    let Some(place) = Place::with_sandboxes() else { return };
    let mut screen = Screen::open(&place, &["shell", "--ephemeral"], 24, 80);
    screen.type_keys("echo rea''dy\n");
    screen.wait_for("ready");
    kill_process(Pid::from_child(&screen.child), Signal::TERM).unwrap();
    screen.exit_status();
    screen.is_as_before();
    assert_eq!(place.run(&["list", "--json"]).exits(0).json(), serde_json::json!([]));
}

#[test]
fn what_a_sandbox_writes_cannot_command_the_terminal() {
    let Some(place) = Place::with_sandboxes() else { return };
    let mut screen =
        Screen::open(&place, &["run", "--", "printf", "\\033]0;owned\\007 en''d\\n"], 24, 80);
    screen.wait_for("␛]0;owned␇");
    assert_eq!(screen.exit_status(), Some(0));
}
