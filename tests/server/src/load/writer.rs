//! A command whose output and exit status are known before it runs.

use std::fmt::Write;

/// What a process writes.
#[derive(Clone, Debug)]
pub struct Writer {
    tag: String,
    lines: u64,
    /// Lines between two short sleeps; none: as fast as it can.
    pace: Option<u64>,
    stderr: bool,
    pub exit_code: i32,
}

impl Writer {
    /// A slow or a fast one, as chance decides.
    #[must_use]
    pub fn choose(random: &mut fastrand::Rng, tag: &str) -> Self {
        let pace = random.bool().then(|| random.u64(2..20));
        let lines = match pace {
            Some(pace) => pace * random.u64(1..60),
            None => random.u64(0..20_000),
        };
        let (stderr, exit_code) = (random.u8(..4) == 0, random.i32(0..10));
        Self { tag: tag.to_owned(), lines, pace, stderr, exit_code }
    }

    /// A line for the shell.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { tag, lines, exit_code, .. } = self;
        let to = if self.stderr { " >&2" } else { "" };
        match self.pace {
            None => format!("seq -f '{tag} %.0f' 1 {lines}{to}; exit {exit_code}"),
            Some(pace) => format!(
                "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo \"{tag} $i\"{to}; \
                 [ $((i % {pace})) = 0 ] && sleep 0.05; done; exit {exit_code}"
            ),
        }
    }

    /// What it has written by its end: standard output and standard error.
    #[must_use]
    pub fn output(&self) -> (Vec<u8>, Vec<u8>) {
        let mut text = String::new();
        for line in 1..=self.lines {
            writeln!(text, "{} {line}", self.tag).expect("memory takes it");
        }
        let bytes = text.into_bytes();
        if self.stderr { (Vec::new(), bytes) } else { (bytes, Vec::new()) }
    }
}
