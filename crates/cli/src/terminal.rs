//! The terminal of the person at the keyboard.

use std::io::{self, IsTerminal};

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::Environment;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::env_vars;
use crate::failure::Failure;

/// A kind of terminal that every program knows, for where our own is not told.
const FALLBACK_TERM: &str = "xterm-256color";

/// Used where the terminal does not know its own size.
const FALLBACK_SIZE: (u16, u16) = (24, 80);

/// Hands every key to the reader as it is, until dropped. Dropping puts the terminal back as it was, whatever happened
/// in between.
#[derive(Debug)]
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// # Errors
    /// Where standard input is no terminal.
    pub(crate) fn enter() -> Result<Self, Failure> {
        let before = tcgetattr(stdin()).map_err(|error| cannot(error.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| cannot(error.into()))?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing better can be done where the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Refuses to go on where there is no person to talk to.
pub(crate) fn require() -> Result<(), Failure> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(Code::InvalidArgument, "standard input and output are not a terminal")
        .with_remedy("use `belljar exec` or `belljar run` for commands that need no terminal"))
}

/// Rows and columns.
pub(crate) fn size() -> (u16, u16) {
    match tcgetwinsize(stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => FALLBACK_SIZE,
    }
}

/// As [`size`], for the server.
pub(crate) fn wire_size() -> v1::Terminal {
    let (rows, columns) = size();
    v1::Terminal { rows: rows.into(), columns: columns.into() }
}

/// Tells the programs inside which kind of terminal this is, unless the caller did.
pub(crate) fn describe(environment: &mut Environment) -> Result<(), Failure> {
    if environment.get(env_vars::TERM).is_none() {
        let term = std::env::var(env_vars::TERM).unwrap_or_else(|_| FALLBACK_TERM.to_owned());
        environment.set(env_vars::TERM, &term)?;
    }
    Ok(())
}

fn cannot(error: io::Error) -> Failure {
    Failure::new(Code::InvalidArgument, "the terminal cannot be used").caused_by(&error)
}
