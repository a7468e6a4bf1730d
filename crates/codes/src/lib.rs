//! The registry of error codes.
//!
//! A code is the stable name of a kind of failure: the same in Rust, on the wire, in the SDKs and in the docs. Human
//! text may change; codes do not. Add a code here, never a string at the place that fails.

#![forbid(unsafe_code)]

use std::fmt;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident => $text:literal,)+) => {
        /// The stable name of a kind of failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Code {
            /// All codes, in the order of this file.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)+];

            /// The code as it is written everywhere: lower-case words with hyphens.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)+ }
            }

            /// One sentence for the reference page.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

codes! {
    // --- what the caller asked for is wrong ---
    /// An argument is malformed or out of range.
    InvalidArgument => "invalid-argument",
    /// A name has characters or a length that names may not have.
    InvalidName => "invalid-name",
    /// A limit is zero, negative, absurd or not a number with a known unit.
    InvalidLimit => "invalid-limit",
    /// The combination of options contradicts itself.
    ConflictingOptions => "conflicting-options",
    /// There is no template of that name.
    TemplateNotFound => "template-not-found",
    /// A host or allowlist entry is malformed, or the allowlist is empty.
    InvalidNetworkRule => "invalid-network-rule",
    /// A policy document cannot be read, or says what cannot be; the message names line and column.
    InvalidPolicy => "invalid-policy",
    /// A directory to mount is missing, unreadable or not a directory.
    MountSourceUnusable => "mount-source-unusable",
    /// A host directory that sandboxes never get to see was asked for as a mount.
    MountSourceProtected => "mount-source-protected",
    /// A place inside the sandbox cannot be used as a mount target.
    MountTargetInvalid => "mount-target-invalid",
    /// A configuration file or environment variable has a value that cannot be used.
    InvalidConfiguration => "invalid-configuration",

    // --- things that are not there, or are there already ---
    /// There is no sandbox of that name or id.
    SandboxNotFound => "sandbox-not-found",
    /// A sandbox of that name exists already.
    SandboxExists => "sandbox-exists",
    /// The sandbox is not in a state in which this can be done.
    SandboxNotReady => "sandbox-not-ready",
    /// The sandbox ended while it was in use.
    SandboxGone => "sandbox-gone",
    /// There is no process of that id.
    ProcessNotFound => "process-not-found",
    /// There is no file or directory of that path inside the sandbox.
    FileNotFound => "file-not-found",
    /// A file or directory of that path exists already inside the sandbox.
    FileExists => "file-exists",
    /// The path inside the sandbox names something of another kind (a directory, a device, a pipe).
    FileKindWrong => "file-kind-wrong",
    /// The sandbox's user may not do this to that path.
    FileDenied => "file-denied",
    /// A file operation inside the sandbox failed.
    FileFailed => "file-failed",
    /// The process has ended, so nothing can be sent to it.
    ProcessEnded => "process-ended",
    /// There is no tenant of that name.
    TenantNotFound => "tenant-not-found",
    /// A tenant of that name exists already.
    TenantExists => "tenant-exists",
    /// The tenant still has sandboxes.
    TenantInUse => "tenant-in-use",
    /// There is no API key of that id.
    KeyNotFound => "key-not-found",
    /// There is no webhook of that id.
    WebhookNotFound => "webhook-not-found",
    /// There is no secret of that name.
    SecretNotFound => "secret-not-found",
    /// There is no snapshot of that id.
    SnapshotNotFound => "snapshot-not-found",
    /// A snapshot of that name exists already.
    SnapshotExists => "snapshot-exists",
    /// What is stored of a snapshot is not what was saved; nothing is restored from it.
    SnapshotDamaged => "snapshot-damaged",
    /// The sandbox has more files, or larger ones, than a snapshot of it may keep.
    SnapshotTooLarge => "snapshot-too-large",
    /// There is nothing at this address of the API.
    RouteNotFound => "route-not-found",
    /// An archive has entries that are never extracted, or is larger than the limits allow.
    ArchiveRefused => "archive-refused",
    /// The sandbox has no workspace layer to show, apply or discard.
    LayerNotFound => "layer-not-found",
    /// The workspace changed on the host in a way that conflicts with the layer.
    LayerConflict => "layer-conflict",

    // --- tools and callbacks ---
    /// The sandbox has no tool of that name.
    ToolNotFound => "tool-not-found",
    /// The tool ran and failed, or answered with something that is no answer.
    ToolFailed => "tool-failed",
    /// Nobody answers for the tool now: its client is not connected, went away, or is busy.
    ToolUnavailable => "tool-unavailable",
    /// Another client that is still connected answers for this tool or decision of the sandbox.
    CallbackExists => "callback-exists",

    // --- starting a command ---
    /// The program does not exist inside the sandbox.
    ProgramNotFound => "program-not-found",
    /// The program exists but cannot be executed.
    ProgramNotExecutable => "program-not-executable",
    /// The program is outside the sandbox's minimal-PATH profile.
    ProgramDenied => "program-denied",
    /// The working directory does not exist inside the sandbox, or is not a plain directory.
    WorkingDirectoryInvalid => "working-directory-invalid",
    /// The user does not exist in this sandbox.
    UserInvalid => "user-invalid",
    /// Arguments and environment are larger than the kernel or our limits allow.
    ArgumentsTooLarge => "arguments-too-large",
    /// A command of `--ensure` failed, so the sandbox was not made ready.
    EnsureFailed => "ensure-failed",

    // --- who is asking ---
    /// The request carries no identity, or one that is wrong, expired or revoked.
    Unauthenticated => "unauthenticated",
    /// The caller is known but its key does not allow this.
    PermissionDenied => "permission-denied",
    /// A signed token is missing, malformed, expired or was made for something else.
    TokenInvalid => "token-invalid",
    /// The tenant's quota does not allow this.
    QuotaExceeded => "quota-exceeded",
    /// The caller sent more requests in a second than its tenant may.
    RateLimited => "rate-limited",
    /// The idempotency key was used before for another request.
    IdempotencyConflict => "idempotency-conflict",
    /// A request, header or message is larger than the server takes.
    RequestTooLarge => "request-too-large",
    /// This method is not known at this address of the API.
    MethodNotAllowed => "method-not-allowed",
    /// The body of a request is of a kind that this address does not take.
    UnsupportedMediaType => "unsupported-media-type",
    /// The client took too long to send its request.
    RequestTimedOut => "request-timed-out",

    /// There is no policy with this name, or not this version of it.
    PolicyNotFound => "policy-not-found",
    /// The policy that the sandbox runs under denies this; the message names the rule.
    PolicyDenied => "policy-denied",
    /// Nothing waits to be allowed under that id; it was answered, or its time is over.
    ApprovalNotFound => "approval-not-found",
    /// The network rules of the sandbox deny this connection, name or request.
    NetworkDenied => "network-denied",

    /// A secret that a credential names cannot be had from its source on the host.
    SecretUnavailable => "secret-unavailable",
    /// The host that a request of the sandbox went to could not be reached, or did not prove to be that host.
    UpstreamFailed => "upstream-failed",

    // --- limits reached ---
    /// The memory limit was reached and the kernel killed a process of the sandbox.
    Oom => "oom",
    /// The command ran longer than its timeout and its whole process tree was killed.
    TimedOut => "timed-out",
    /// The limit on processes was reached.
    PidsExhausted => "pids-exhausted",
    /// The limit on disk bytes or inodes was reached.
    DiskFull => "disk-full",
    /// More output was produced than is kept.
    OutputTruncated => "output-truncated",

    // --- this host cannot ---
    /// No backend that satisfies the request works on this host.
    NoBackend => "no-backend",
    /// The named backend does not exist or does not work on this host.
    BackendUnavailable => "backend-unavailable",
    /// The backend cannot enforce what was asked, so it was refused.
    NotEnforceable => "not-enforceable",
    /// The host lacks a kernel feature or a permission that is needed.
    HostUnsupported => "host-unsupported",
    /// The host is short of disk, memory, identifiers or another resource.
    HostExhausted => "host-exhausted",
    /// Isolation was waived without the flag that says so.
    IsolationNotWaived => "isolation-not-waived",

    // --- our own failures ---
    /// The sandbox could not be started.
    StartFailed => "start-failed",
    /// The privileged helper failed or vanished.
    LauncherFailed => "launcher-failed",
    /// The agent inside the sandbox did not answer as it should.
    AgentFailed => "agent-failed",
    /// The state directory cannot be read or written.
    StateFailed => "state-failed",
    /// The state directory belongs to a newer version of Belljar.
    StateTooNew => "state-too-new",
    /// Nothing listens at that port of the sandbox, or it does not answer.
    PortUnreachable => "port-unreachable",
    /// There is no server at that address, or it does not answer.
    ServerUnreachable => "server-unreachable",
    /// Another server serves this state directory.
    ServerRunning => "server-running",
    /// The server is shutting down and takes no new work.
    ServerStopping => "server-stopping",
    /// The audit log was changed after it was written, or a part of it is missing.
    AuditBroken => "audit-broken",
    /// The operation was interrupted.
    Interrupted => "interrupted",
    /// A bug in Belljar.
    Internal => "internal",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_kebab_case_words() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} appears twice");
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{text}");
            assert!(code.description().trim().ends_with('.'), "{text}");
        }
    }
}
