//! What can be asked of the server, by name: for permissions, the audit log and the metrics.

use crate::caller::Permission;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// As it is written in the audit log and in metrics.
    pub(crate) name: &'static str,
    pub(crate) permission: Permission,
    /// Looking around leaves no record.
    pub(crate) audited: bool,
}

const fn reads(name: &'static str) -> Action {
    Action { name, permission: Permission::Read, audited: false }
}

const fn does(name: &'static str, permission: Permission) -> Action {
    Action { name, permission, audited: true }
}

pub(crate) const CREATE_SANDBOX: Action = does("sandbox.create", Permission::Write);
pub(crate) const GET_SANDBOX: Action = reads("sandbox.get");
pub(crate) const LIST_SANDBOXES: Action = reads("sandbox.list");
pub(crate) const DESTROY_SANDBOX: Action = does("sandbox.destroy", Permission::Write);
pub(crate) const EXTEND_SANDBOX: Action = does("sandbox.extend", Permission::Write);
pub(crate) const PAUSE_SANDBOX: Action = does("sandbox.pause", Permission::Write);
pub(crate) const RESUME_SANDBOX: Action = does("sandbox.resume", Permission::Write);
pub(crate) const EXPLAIN_SANDBOX: Action = reads("sandbox.explain");
pub(crate) const WATCH_EVENTS: Action = reads("event.watch");
pub(crate) const DIFF_LAYER: Action = reads("layer.diff");
pub(crate) const APPLY_LAYER: Action = does("layer.apply", Permission::Admin);
pub(crate) const DISCARD_LAYER: Action = does("layer.discard", Permission::Write);

pub(crate) const RUN: Action = does("process.run", Permission::Exec);
pub(crate) const EXEC: Action = does("process.exec", Permission::Exec);
pub(crate) const START_PROCESS: Action = does("process.start", Permission::Exec);
pub(crate) const GET_PROCESS: Action = reads("process.get");
pub(crate) const LIST_PROCESSES: Action = reads("process.list");
pub(crate) const FOLLOW_LOG: Action = reads("process.log");
pub(crate) const WAIT_PROCESS: Action = reads("process.wait");
pub(crate) const CANCEL_PROCESS: Action = does("process.cancel", Permission::Exec);
pub(crate) const SIGNAL_PROCESS: Action = does("process.signal", Permission::Exec);
pub(crate) const WRITE_INPUT: Action = does("process.input", Permission::Exec);
pub(crate) const RESIZE_TERMINAL: Action =
    Action { name: "process.resize", permission: Permission::Exec, audited: false };

pub(crate) const LOOK_AT_FILES: Action =
    Action { name: "file.look", permission: Permission::Files, audited: false };
pub(crate) const READ_FILE: Action = does("file.read", Permission::Files);
pub(crate) const WRITE_FILE: Action = does("file.write", Permission::Files);
pub(crate) const CHANGE_FILE: Action = does("file.change", Permission::Files);
pub(crate) const REMOVE_FILE: Action = does("file.remove", Permission::Files);

pub(crate) const CREATE_SNAPSHOT: Action = does("snapshot.create", Permission::Files);
pub(crate) const GET_SNAPSHOT: Action = reads("snapshot.get");
pub(crate) const LIST_SNAPSHOTS: Action = reads("snapshot.list");
pub(crate) const RESTORE_SNAPSHOT: Action = does("snapshot.restore", Permission::Write);
pub(crate) const REMOVE_SNAPSHOT: Action = does("snapshot.remove", Permission::Write);

pub(crate) const SERVE_CALLBACKS: Action = does("callback.serve", Permission::Write);
pub(crate) const EXPOSE_PORT: Action = does("port.expose", Permission::Write);
pub(crate) const HIDE_PORT: Action = does("port.hide", Permission::Write);
pub(crate) const LIST_PORTS: Action = reads("port.list");
pub(crate) const FORWARD_PORT: Action = does("port.forward", Permission::Exec);
/// A request to a port over HTTP. One page makes many of them; what was shown is on record.
pub(crate) const VISIT_PORT: Action =
    Action { name: "port.visit", permission: Permission::Exec, audited: false };

pub(crate) const GET_NETWORK: Action = reads("network.get");
pub(crate) const CHANGE_NETWORK: Action = does("network.change", Permission::Write);
pub(crate) const READ_NETWORK_LOG: Action = reads("network.log");
pub(crate) const LIST_APPROVALS: Action = reads("approval.list");
pub(crate) const ANSWER_APPROVAL: Action = does("approval.answer", Permission::Write);

pub(crate) const LIST_TEMPLATES: Action = reads("template.list");
pub(crate) const FETCH_TEMPLATE: Action = does("template.fetch", Permission::Write);
pub(crate) const LIST_PROFILES: Action = reads("profile.list");
pub(crate) const PUT_POLICY: Action = does("policy.put", Permission::Write);
pub(crate) const GET_POLICY: Action = reads("policy.get");
pub(crate) const LIST_POLICIES: Action = reads("policy.list");
pub(crate) const REMOVE_POLICY: Action = does("policy.remove", Permission::Write);
pub(crate) const LEARN_POLICY: Action = reads("policy.learn");

pub(crate) const GET_SERVER: Action = reads("server.get");
pub(crate) const STOP_SERVER: Action = does("server.stop", Permission::Admin);
pub(crate) const PROBE: Action =
    Action { name: "server.probe", permission: Permission::Admin, audited: false };
pub(crate) const FIND_LEAKS: Action = does("server.leaks", Permission::Admin);
pub(crate) const MANAGE_KEYS: Action = does("key.manage", Permission::Keys);
pub(crate) const LIST_KEYS: Action =
    Action { name: "key.list", permission: Permission::Keys, audited: false };
pub(crate) const MANAGE_TENANTS: Action = does("tenant.manage", Permission::Admin);
pub(crate) const LOOK_AT_TENANTS: Action = reads("tenant.look");
pub(crate) const LIST_TENANTS: Action =
    Action { name: "tenant.list", permission: Permission::Admin, audited: false };
pub(crate) const ISSUE_TOKEN: Action = does("token.issue", Permission::Write);
pub(crate) const MANAGE_WEBHOOKS: Action = does("webhook.manage", Permission::Write);
pub(crate) const LIST_WEBHOOKS: Action = reads("webhook.list");
pub(crate) const MANAGE_SECRETS: Action = does("secret.manage", Permission::Write);
pub(crate) const LIST_SECRETS: Action = reads("secret.list");
pub(crate) const QUERY_AUDIT: Action =
    Action { name: "audit.query", permission: Permission::Admin, audited: false };
