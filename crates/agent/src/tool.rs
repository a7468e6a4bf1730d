//! `belljar-tool`: calls a tool of the host from any program, or lists the tools there are.
//!
//! The result goes to standard output as JSON; a failure to standard error, with exit code 1 (2: used wrongly).

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::tools::SOCKET_PATH;

const USAGE: &str = "usage: belljar-tool call NAME [ARGUMENTS]   (JSON; `-` or none: from standard input)\n       belljar-tool list";

/// More cannot be said anyway.
const LONGEST_INPUT: u64 = 256 * 1024;

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes()).collect();
    let line = match words.as_slice() {
        [b"list"] => Ok(b"list".to_vec()),
        [b"call", name] | [b"call", name, b"-"] => read_input().map(|input| call(name, &input)),
        [b"call", name, json] => Ok(call(name, json)),
        [b"--help" | b"-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match line.and_then(|line| ask(&line)) {
        Ok(answer) => told(&answer),
        Err(error) => {
            eprintln!("error: tools cannot be called: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Line feeds mean nothing in JSON outside of strings, and are none inside.
fn call(name: &[u8], json: &[u8]) -> Vec<u8> {
    let json = json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
    let name = name.iter().filter(|byte| !matches!(byte, b'\n' | b'\r')).copied();
    b"call ".iter().copied().chain(name).chain([b' ']).chain(json).collect()
}

fn read_input() -> std::io::Result<Vec<u8>> {
    let mut input = Vec::new();
    std::io::stdin().take(LONGEST_INPUT).read_to_end(&mut input)?;
    Ok(input)
}

fn ask(line: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut socket = UnixStream::connect(SOCKET_PATH)?;
    // Who is told no before all was said hangs up on the rest; the answer is there nevertheless.
    let said = socket.write_all(&[line, b"\n"].concat());
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Ok(_) if !answer.is_empty() => Ok(answer),
        Ok(_) => said.and(Err(std::io::ErrorKind::UnexpectedEof.into())),
        Err(_) if !answer.is_empty() => Ok(answer),
        Err(error) => Err(error),
    }
}

fn told(answer: &[u8]) -> ExitCode {
    let answer = answer.strip_suffix(b"\n").unwrap_or(answer);
    if let Some(result) = answer.strip_prefix(b"ok ") {
        let written = std::io::stdout().write_all(&[result, b"\n"].concat());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let words =
        String::from_utf8_lossy(answer.strip_prefix(b"error ").unwrap_or(answer)).into_owned();
    let (code, words) = words.split_once(' ').unwrap_or((&words, ""));
    let shown: String = words.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    eprintln!("error: {shown} ({code})");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_one_line() {
        assert_eq!(call(b"add", b"{\n \"a\": 1\r\n}"), b"call add {  \"a\": 1  }");
        assert_eq!(call(b"a\nlist", b""), b"call alist ");
    }
}
