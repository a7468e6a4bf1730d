//! The agent, embedded: a static program for this machine's architecture, built by this crate's build script.
//!
//! So that one file is the whole installation.
#![forbid(unsafe_code)]

/// The agent's ELF file.
pub static AGENT: &[u8] = include_bytes!(env!("BELLJAR_AGENT_PATH"));

#[cfg(test)]
mod tests {
    use super::AGENT;

    #[test]
    fn is_a_small_static_program() {
        assert!(AGENT.starts_with(b"\x7fELF\x02"));
        assert!(AGENT.len() <= 600_000, "{} bytes", AGENT.len());
        // A dynamic one would name its loader.
        assert!(!AGENT.windows(7).any(|window| window == b"ld-musl"));
        assert!(!AGENT.windows(8).any(|window| window == b"ld-linux"));
    }
}
