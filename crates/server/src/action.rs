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
    pub(crate) target: Target,
}

/// What it is that a request names. A name that looks like the id of something else is not that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A sandbox that exists, by id or name.
    Sandbox,
    Process,
    /// Anything else, or what is yet to be made.
    Other,
}

const fn reads(name: &'static str) -> Action {
    does(name, Permission::Read).unaudited()
}

const fn does(name: &'static str, permission: Permission) -> Action {
    Action { name, permission, audited: true, target: Target::Other }
}

impl Action {
    const fn unaudited(self) -> Self {
        Self { audited: false, ..self }
    }

    /// The same, done to something of that kind.
    pub(crate) const fn to(self, target: Target) -> Self {
        Self { target, ..self }
    }
}

pub(crate) const CREATE_SANDBOX: Action = does("sandbox.create", Permission::Write);
pub(crate) const GET_SANDBOX: Action = reads("sandbox.get");
pub(crate) const LIST_SANDBOXES: Action = reads("sandbox.list");
pub(crate) const DESTROY_SANDBOX: Action =
    does("sandbox.destroy", Permission::Write).to(Target::Sandbox);
pub(crate) const EXTEND_SANDBOX: Action =
    does("sandbox.extend", Permission::Write).to(Target::Sandbox);
pub(crate) const PAUSE_SANDBOX: Action =
    does("sandbox.pause", Permission::Write).to(Target::Sandbox);
pub(crate) const RESUME_SANDBOX: Action =
    does("sandbox.resume", Permission::Write).to(Target::Sandbox);
pub(crate) const EXPLAIN_SANDBOX: Action = reads("sandbox.explain");
pub(crate) const WATCH_EVENTS: Action = reads("event.watch");
pub(crate) const DIFF_LAYER: Action = reads("layer.diff");
pub(crate) const APPLY_LAYER: Action = does("layer.apply", Permission::Admin).to(Target::Sandbox);
pub(crate) const DISCARD_LAYER: Action =
    does("layer.discard", Permission::Write).to(Target::Sandbox);

pub(crate) const RUN: Action = does("process.run", Permission::Exec);
pub(crate) const EXEC: Action = does("process.exec", Permission::Exec).to(Target::Sandbox);
pub(crate) const START_PROCESS: Action =
    does("process.start", Permission::Exec).to(Target::Sandbox);
pub(crate) const GET_PROCESS: Action = reads("process.get");
pub(crate) const LIST_PROCESSES: Action = reads("process.list");
pub(crate) const FOLLOW_LOG: Action = reads("process.log");
pub(crate) const WAIT_PROCESS: Action = reads("process.wait");
pub(crate) const CANCEL_PROCESS: Action =
    does("process.cancel", Permission::Exec).to(Target::Process);
pub(crate) const SIGNAL_PROCESS: Action =
    does("process.signal", Permission::Exec).to(Target::Process);
pub(crate) const WRITE_INPUT: Action = does("process.input", Permission::Exec).to(Target::Process);
pub(crate) const RESIZE_TERMINAL: Action = does("process.resize", Permission::Exec).unaudited();

pub(crate) const LOOK_AT_FILES: Action = does("file.look", Permission::Files).unaudited();
pub(crate) const READ_FILE: Action = does("file.read", Permission::Files).to(Target::Sandbox);
pub(crate) const WRITE_FILE: Action = does("file.write", Permission::Files).to(Target::Sandbox);
pub(crate) const CHANGE_FILE: Action = does("file.change", Permission::Files).to(Target::Sandbox);
pub(crate) const REMOVE_FILE: Action = does("file.remove", Permission::Files).to(Target::Sandbox);

pub(crate) const CREATE_SNAPSHOT: Action =
    does("snapshot.create", Permission::Files).to(Target::Sandbox);
pub(crate) const GET_SNAPSHOT: Action = reads("snapshot.get");
pub(crate) const LIST_SNAPSHOTS: Action = reads("snapshot.list");
pub(crate) const RESTORE_SNAPSHOT: Action = does("snapshot.restore", Permission::Write);
pub(crate) const REMOVE_SNAPSHOT: Action = does("snapshot.remove", Permission::Write);

pub(crate) const SERVE_CALLBACKS: Action =
    does("callback.serve", Permission::Write).to(Target::Sandbox);
pub(crate) const EXPOSE_PORT: Action = does("port.expose", Permission::Write).to(Target::Sandbox);
pub(crate) const HIDE_PORT: Action = does("port.hide", Permission::Write).to(Target::Sandbox);
pub(crate) const LIST_PORTS: Action = reads("port.list");
pub(crate) const FORWARD_PORT: Action = does("port.forward", Permission::Exec).to(Target::Sandbox);
/// A request to a port over HTTP. One page makes many of them; what was shown is on record.
pub(crate) const VISIT_PORT: Action = does("port.visit", Permission::Exec).unaudited();

pub(crate) const GET_NETWORK: Action = reads("network.get");
pub(crate) const CHANGE_NETWORK: Action =
    does("network.change", Permission::Write).to(Target::Sandbox);
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
pub(crate) const PROBE: Action = does("server.probe", Permission::Admin).unaudited();
pub(crate) const FIND_LEAKS: Action = does("server.leaks", Permission::Admin);
pub(crate) const CREATE_KEY: Action = does("key.create", Permission::Keys);
pub(crate) const REVOKE_KEY: Action = does("key.revoke", Permission::Keys);
pub(crate) const LIST_KEYS: Action = does("key.list", Permission::Keys).unaudited();
pub(crate) const CREATE_TENANT: Action = does("tenant.create", Permission::Admin);
pub(crate) const CHANGE_TENANT: Action = does("tenant.change", Permission::Admin);
pub(crate) const REMOVE_TENANT: Action = does("tenant.remove", Permission::Admin);
pub(crate) const LOOK_AT_TENANTS: Action = reads("tenant.look");
pub(crate) const LIST_TENANTS: Action = does("tenant.list", Permission::Admin).unaudited();
pub(crate) const ISSUE_TOKEN: Action = does("token.issue", Permission::Write).to(Target::Sandbox);
pub(crate) const CREATE_WEBHOOK: Action = does("webhook.create", Permission::Write);
pub(crate) const REMOVE_WEBHOOK: Action = does("webhook.remove", Permission::Write);
pub(crate) const LIST_WEBHOOKS: Action = reads("webhook.list");
pub(crate) const SET_SECRET: Action = does("secret.set", Permission::Write);
pub(crate) const REMOVE_SECRET: Action = does("secret.remove", Permission::Write);
pub(crate) const LIST_SECRETS: Action = reads("secret.list");
pub(crate) const QUERY_AUDIT: Action = does("audit.query", Permission::Admin).unaudited();
