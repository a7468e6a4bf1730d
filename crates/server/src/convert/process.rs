//! Processes as callers see them.

use belljar_api::v1;
use belljar_engine::{
    Artifact, Channel, Completed, Exit, Offsets, ProcessId, ProcessInfo, ProcessStatus, Reason,
    SandboxId, Usage,
};

use belljar_policy::scan::Finding;

use super::timestamp;
use crate::problem::Result;

pub(crate) fn process_id(text: &str) -> Result<ProcessId> {
    // A text that is no id is the id of no process.
    ProcessId::parse(text).map_err(|_| {
        let shown = belljar_policy::shown(text);
        crate::problem::Problem::new(
            belljar_codes::Code::ProcessNotFound,
            format!("there is no process `{shown}`"),
        )
        .with_remedy("`belljar ps --all` shows the processes that are on record")
    })
}

pub(crate) fn process(info: &ProcessInfo) -> v1::Process {
    let exit = info.exit.as_ref();
    v1::Process {
        process_id: info.id.as_str().to_owned(),
        sandbox_id: info.sandbox.as_str().to_owned(),
        disposition: v1::Disposition::Kept.into(),
        status: status(info.status).into(),
        command: info.command.clone(),
        exit_code: exit.map(Exit::code),
        started_at: Some(timestamp(info.started_at)),
        finished_at: info.finished_at.map(timestamp),
        expires_at: info.expires_at.map(timestamp),
        reason: exit.map(|exit| reason(exit.reason).into()),
        timed_out: exit.is_some_and(|exit| exit.timed_out),
        limits_hit: exit.map(limits_hit).unwrap_or_default(),
        pid: info.pid.filter(|pid| *pid > 0), // 0: it never came to light
        usage: exit.map(|exit| usage(exit.usage)),
        duration_ms: exit.map(duration_ms),
        tenant: info.tenant.to_string(),
        terminal: info.terminal,
        timeout_secs: info.timeout.map(|timeout| timeout.as_secs_f64()),
        log_end: Some(wire_offsets(info.log)),
        log_start: Some(wire_offsets(info.kept_from)),
        stripped_environment: Vec::new(),
        findings: findings(&info.findings),
    }
}

/// A process among others: what may be long is told where one asks for it.
pub(crate) fn listed_process(info: &ProcessInfo) -> v1::Process {
    v1::Process { findings: Vec::new(), ..process(info) }
}

fn findings(found: &[Finding]) -> Vec<v1::Finding> {
    let finding = |finding: &Finding| v1::Finding {
        line: finding.line,
        column: finding.column,
        rule: finding.rule.as_str().to_owned(),
        name: finding.name.clone(),
    };
    found.iter().map(finding).collect()
}

fn status(status: ProcessStatus) -> v1::ProcessStatus {
    match status {
        ProcessStatus::Starting => v1::ProcessStatus::Starting,
        ProcessStatus::Running => v1::ProcessStatus::Running,
        ProcessStatus::Succeeded => v1::ProcessStatus::Succeeded,
        ProcessStatus::Failed => v1::ProcessStatus::Failed,
        ProcessStatus::Cancelled => v1::ProcessStatus::Cancelled,
        ProcessStatus::Lost => v1::ProcessStatus::Lost,
    }
}

pub(crate) fn status_of(number: i32) -> Option<ProcessStatus> {
    match v1::ProcessStatus::try_from(number).ok()? {
        v1::ProcessStatus::Unspecified => None,
        v1::ProcessStatus::Starting => Some(ProcessStatus::Starting),
        v1::ProcessStatus::Running => Some(ProcessStatus::Running),
        v1::ProcessStatus::Succeeded => Some(ProcessStatus::Succeeded),
        v1::ProcessStatus::Failed => Some(ProcessStatus::Failed),
        v1::ProcessStatus::Cancelled => Some(ProcessStatus::Cancelled),
        v1::ProcessStatus::Lost => Some(ProcessStatus::Lost),
    }
}

fn reason(reason: Reason) -> v1::Reason {
    match reason {
        Reason::Exited => v1::Reason::Exited,
        Reason::Signalled => v1::Reason::Signalled,
        Reason::TimedOut => v1::Reason::TimedOut,
        Reason::Oom => v1::Reason::Oom,
        Reason::Cancelled => v1::Reason::Cancelled,
        Reason::Lost => v1::Reason::Lost,
    }
}

fn usage(usage: Usage) -> v1::Usage {
    v1::Usage {
        user_secs: usage.user.as_secs_f64(),
        system_secs: usage.system.as_secs_f64(),
        peak_memory_bytes: usage.peak_rss_bytes,
        read_bytes: usage.read_bytes,
        written_bytes: usage.written_bytes,
    }
}

fn limits_hit(exit: &Exit) -> Vec<String> {
    exit.limits_hit.iter().map(|code| code.as_str().to_owned()).collect()
}

fn duration_ms(exit: &Exit) -> u64 {
    u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX)
}

fn wire_offsets(offsets: Offsets) -> v1::Offsets {
    v1::Offsets { stdout: offsets.stdout, stderr: offsets.stderr }
}

pub(crate) fn offsets(wire: Option<&v1::Offsets>) -> Offsets {
    wire.map(|wire| Offsets { stdout: wire.stdout, stderr: wire.stderr }).unwrap_or_default()
}

pub(crate) fn channel(channel: Channel) -> v1::Channel {
    match channel {
        Channel::Stdout => v1::Channel::Stdout,
        Channel::Stderr => v1::Channel::Stderr,
    }
}

/// How a command ended, with what it wrote.
pub(crate) fn exec_response(
    process: &ProcessId,
    sandbox: &SandboxId,
    found: &[Finding],
    completed: Completed,
) -> v1::ExecResponse {
    let exit = completed.exit;
    v1::ExecResponse {
        process_id: process.as_str().to_owned(),
        sandbox_id: sandbox.as_str().to_owned(),
        exit_code: exit.code(),
        duration_ms: duration_ms(&exit),
        reason: reason(exit.reason).into(),
        timed_out: exit.timed_out,
        limits_hit: limits_hit(&exit),
        usage: Some(usage(exit.usage)),
        stdout_truncated: completed.stdout.truncated,
        stderr_truncated: completed.stderr.truncated,
        stdout: completed.stdout.data.into(),
        stderr: completed.stderr.data.into(),
        stripped_environment: Vec::new(),
        artifacts: Vec::new(),
        findings: findings(found),
    }
}

pub(crate) fn artifact(artifact: &Artifact) -> v1::Artifact {
    let path = artifact.path.to_string_lossy().into_owned();
    v1::Artifact { mime_type: mime_type(&path).to_owned(), path, bytes: artifact.bytes }
}

/// By the name's ending: what the content claims is the sandbox's word anyway.
fn mime_type(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "txt" | "log" | "py" | "rs" | "sh" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "parquet" => "application/vnd.apache.parquet",
        _ => "application/octet-stream",
    }
}
