//! A policy from what a sandbox did: the smallest document that allows the same again, for people to review.
//!
//! What was asked and permitted is in the audit log; what processes used is in their records. Nothing is guessed: what
//! the log has only in part is told as a note.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::document::{
    Action, Condition, Defaults, Document, EnvironmentSection, Filesystem, Isolation, Mount,
    MountAccess, NetworkSection, Operator, Processes, Rule, Value,
};
use belljar_policy::{HostPattern, NetworkMode};
use serde_json::Value as Json;

use super::QuestionKind;
use crate::audit::{AuditEntry, AuditQuery};
use crate::store::SandboxRecord;
use crate::{Engine, Error, ProcessQuery, Result};

/// Beyond, paths are allowed by their directories.
const MAX_PATHS: usize = 32;

/// A little more than was used: the next run differs a little.
const ROOM: u64 = 2;
const LEAST_MEMORY_MIB: u64 = 64;
const LEAST_SECONDS: u64 = 10;

/// A document, and what could not be learned exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    pub document: Document,
    pub notes: Vec<String>,
}

pub(crate) async fn learn(engine: &Engine, record: &SandboxRecord) -> Result<Learned> {
    if record.details.policy.is_none() {
        let message = format!("nothing of what sandbox `{}` did was recorded", record.id);
        return Err(Error::new(Code::InvalidArgument, message)
            .with_remedy("create a sandbox with `--policy-record` and run the work in it"));
    }
    let query = AuditQuery { sandbox: Some(record.id.to_string()), ..AuditQuery::default() };
    let mut records = engine.audit().query(query).await;
    let mut seen = Seen::default();
    while let Some(found) = records.next().await? {
        seen.note(&found.entry);
    }
    let (memory, longest) = used(engine, record).await?;
    let name = record.name.as_deref().unwrap_or_else(|| record.id.as_str());
    let mut document = seen.document();
    document.name = format!("learned-{name}");
    document.description = format!("what sandbox {} did", record.id);
    let limits = &record.details.limits;
    document.defaults = Defaults {
        action: Action::Deny,
        max_cpu: Some(f64::from(limits.cpu_millis.value) / 1000.0),
        max_memory_mb: Some(memory.min(limits.memory_bytes.value >> 20)),
        timeout_seconds: Some(longest),
        ..Defaults::default()
    };
    document.processes = Some(Processes { count: Some(limits.pids.value), ..Processes::default() });
    document.isolation = match record.details.class.as_str() {
        "namespace" => Some(Isolation::Namespace),
        "kernel" => Some(Isolation::Kernel),
        "vm" => Some(Isolation::Vm),
        _ => None,
    };
    Ok(Learned { document, notes: seen.notes.into_iter().collect() })
}

/// Memory in MiB and seconds, with some room.
async fn used(engine: &Engine, record: &SandboxRecord) -> Result<(u64, u64)> {
    let mut query = ProcessQuery {
        sandbox: Some(record.id.to_string()),
        limit: Some(1000),
        ..ProcessQuery::default()
    };
    let (mut memory, mut longest) = (0, Duration::ZERO);
    loop {
        let page = engine.processes(&query).await?;
        for exit in page.items.iter().filter_map(|process| process.exit.as_ref()) {
            memory = memory.max(exit.usage.peak_rss_bytes);
            longest = longest.max(exit.duration);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let memory = (memory * ROOM).div_ceil(LEAST_MEMORY_MIB << 20) * LEAST_MEMORY_MIB;
    let seconds = (longest.as_secs() + 1) * ROOM;
    Ok((memory.max(LEAST_MEMORY_MIB), seconds.max(LEAST_SECONDS)))
}

/// What was permitted.
#[derive(Default)]
struct Seen {
    commands: BTreeSet<String>,
    /// Of commands that are on record only in part.
    programs: BTreeSet<String>,
    paths: BTreeSet<String>,
    tools: BTreeSet<String>,
    hosts: BTreeSet<String>,
    variables: BTreeSet<String>,
    mounts: Vec<Mount>,
    writable: bool,
    notes: BTreeSet<String>,
}

impl Seen {
    fn note(&mut self, entry: &AuditEntry) {
        if entry.tells_of_a_loss() {
            let note = "so much happened at once that some of it is not on record, and not allowed";
            self.notes.insert(note.to_owned());
        }
        if entry.outcome != "ok" {
            return;
        }
        if entry.action.starts_with("network.") {
            return self.host(entry.detail.get("host"), entry.detail.get("port"));
        }
        let context = entry.detail.get("context").and_then(|text| serde_json::from_str(text).ok());
        let context: Json = context.unwrap_or_default();
        let text = |field: &str| context[field].as_str();
        let is = |kind: QuestionKind| entry.action == kind.audit_action();
        if is(QuestionKind::Exec) || is(QuestionKind::Code) {
            self.variables.extend(texts(&context["environment"]));
            match (text("command"), text("program")) {
                (Some(command), _) if whole(command) => {
                    self.commands.insert(command.to_owned());
                }
                (_, Some(program)) => {
                    self.programs.insert(program.to_owned());
                    self.notes.insert(format!(
                        "commands of `{program}` are long or have secrets in them: any command of it is allowed"
                    ));
                }
                _ => {
                    self.notes.insert("a command is not on record".to_owned());
                }
            }
        } else if is(QuestionKind::FileWrite) {
            self.paths.extend(text("path").map(str::to_owned));
        } else if is(QuestionKind::Tool) {
            self.tools.extend(text("tool").map(str::to_owned));
        } else if is(QuestionKind::Network) {
            let port = context["port"].as_u64().map(|port| port.to_string());
            let host = text("host").map(str::to_owned);
            self.host(host.as_ref(), port.as_ref());
        } else if is(QuestionKind::Create) {
            self.created(&context);
        }
    }

    fn host(&mut self, host: Option<&String>, port: Option<&String>) {
        let Some(host) = host else { return };
        match port.map(String::as_str) {
            None | Some("0" | "80" | "443" | "53") => self.hosts.insert(host.clone()),
            Some(port) => self.hosts.insert(format!("{host}:{port}")),
        };
    }

    fn created(&mut self, context: &Json) {
        self.writable = context["writable"].as_bool().unwrap_or(false);
        let workspace = context["workspace"].as_str().map(|path| format!("{path}:/workspace:rw"));
        for text in texts(&context["mounts"]).chain(workspace) {
            let mut parts = text.rsplitn(3, ':');
            let (Some(access), Some(target), Some(source)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let access = match access {
                "rw" => MountAccess::ReadWrite,
                _ => MountAccess::ReadOnly,
            };
            let Ok(target) = serde_json::from_value(Json::from(target)) else { continue };
            self.mounts.push(Mount { source: source.to_owned(), target, access });
        }
    }

    fn document(&mut self) -> Document {
        let mut rules = Vec::new();
        let mut allow = |name: &str, field: &str, operator, value: Value| {
            rules.push(Rule {
                name: name.to_owned(),
                condition: Condition { field: field.to_owned(), operator, value },
                action: Action::Allow,
                priority: 0,
                message: String::new(),
                overrides: false,
            });
        };
        let list = |texts: &BTreeSet<String>| texts.iter().map(String::as_str).collect::<Value>();
        if !self.commands.is_empty() {
            allow("commands", "command", Operator::In, list(&self.commands));
        }
        if !self.programs.is_empty() {
            allow("programs", "program", Operator::In, list(&self.programs));
        }
        if self.paths.len() > MAX_PATHS {
            self.notes.insert("many files were written: their directories are allowed".to_owned());
            let directories: BTreeSet<String> =
                self.paths.iter().map(|path| directory_of(path)).collect();
            let pattern = format!("^(?:{})", directories.into_iter().collect::<Vec<_>>().join("|"));
            allow("files", "path", Operator::Matches, pattern.into());
        } else if !self.paths.is_empty() {
            allow("files", "path", Operator::In, list(&self.paths));
        }
        if !self.tools.is_empty() {
            allow("tools", "tool", Operator::In, list(&self.tools));
        }
        let mut network_allowlist = Vec::new();
        for host in &self.hosts {
            match HostPattern::parse(host) {
                Ok(pattern) => network_allowlist.push(pattern),
                Err(_) => {
                    self.notes.insert(format!("`{host}` cannot be in an allowlist"));
                }
            }
        }
        let mode = match network_allowlist.is_empty() {
            true => NetworkMode::None,
            false => NetworkMode::Allowlist,
        };
        Document {
            rules,
            network_allowlist,
            network: Some(NetworkSection { mode: Some(mode), ..NetworkSection::default() }),
            tool_allowlist: self.tools.iter().cloned().collect(),
            filesystem: Some(Filesystem {
                writable_root: Some(self.writable),
                mounts: self.mounts.clone(),
                ..Filesystem::default()
            }),
            environment: Some(EnvironmentSection {
                allow: Some(self.variables.iter().cloned().collect()),
                ..EnvironmentSection::default()
            }),
            ..Document::default()
        }
    }
}

/// Whether a command is on record as it was.
fn whole(command: &str) -> bool {
    !command.ends_with('…') && !command.contains("[redacted]")
}

fn texts(list: &Json) -> impl Iterator<Item = String> + '_ {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned))
}

fn directory_of(path: &str) -> String {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    format!("{}/", regex::escape(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_record_is_told() {
        let told = |entry: AuditEntry| {
            let mut seen = Seen::default();
            seen.note(&entry);
            seen.notes.len()
        };
        let detail = [("lost".to_owned(), "7".to_owned())];
        let flow = AuditEntry { action: "network.flow".to_owned(), ..AuditEntry::default() };
        assert_eq!(told(flow.clone()), 0);
        assert_eq!(told(AuditEntry { detail: detail.into(), ..flow.clone() }), 1);
        assert_eq!(told(AuditEntry { action: "audit.lost".to_owned(), ..flow }), 1);
    }
}
