//! What a sandbox may reach, and what it did.

use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{
    ApprovalAnswer, Network, NetworkChange, NetworkEntry, PendingApproval, SandboxId,
};
use belljar_policy::shown;

use super::{seconds, timestamp};
use crate::caller::Caller;
use crate::problem::{Problem, Result};

/// Longer waits would let connections pile up that nobody looks at.
const LONGEST_ASK: Duration = Duration::from_secs(600);

pub(crate) fn sandbox_network(id: &SandboxId, network: &Network) -> v1::SandboxNetwork {
    v1::SandboxNetwork {
        sandbox_id: id.to_string(),
        mode: network.mode.clone(),
        allow: network.allow.clone(),
        deny: network.deny.clone(),
        cidrs: network.cidrs.clone(),
        ask_secs: network.ask.map(|ask| ask.as_secs_f64()),
        callback_connections: network.callback.connections,
        callback_requests: network.callback.requests,
        enforcement: network.enforcement.clone(),
        open: network.open.map(|open| u32::try_from(open).unwrap_or(u32::MAX)),
    }
}

pub(crate) fn network_change(
    caller: &Caller,
    wire: &v1::ChangeNetworkRequest,
) -> Result<NetworkChange> {
    let entries = |entries: &Option<v1::NetworkEntries>| {
        entries.as_ref().map(|entries| entries.entries.clone())
    };
    refuse_ranges(caller, wire.cidrs.as_ref().map_or(&[], |cidrs| &cidrs.entries))?;
    Ok(NetworkChange {
        mode: wire.mode.as_deref().map(str::parse).transpose()?,
        replace: entries(&wire.replace),
        allow: wire.allow.clone(),
        deny: wire.deny.clone(),
        cidrs: entries(&wire.cidrs),
        ask: wire.ask_secs.map(ask).transpose()?,
    })
}

/// Addresses of the host and of private networks are the operator's to give.
pub(crate) fn refuse_ranges(caller: &Caller, cidrs: &[String]) -> Result<()> {
    if caller.is_admin() || cidrs.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::PermissionDenied, "addresses that are not public need the role `admin`")
        .with_remedy("name public hosts, or ask the operator"))
}

pub(crate) fn ask(secs: f64) -> Result<Duration> {
    let ask = seconds("ask_secs", secs)?;
    if ask > LONGEST_ASK {
        return Err(Problem::invalid("nothing waits longer than ten minutes to be allowed"));
    }
    Ok(ask)
}

pub(crate) fn network_decision(entry: &NetworkEntry) -> v1::NetworkDecision {
    let owner = entry.owner.as_ref();
    v1::NetworkDecision {
        at: Some(timestamp(entry.at)),
        stage: entry.stage.clone(),
        transport: entry.transport.clone(),
        host: entry.host.clone(),
        address: entry.address.map(|address| address.to_string()),
        port: entry.port.into(),
        sni: entry.sni.clone(),
        method: entry.method.clone(),
        path: entry.path.clone(),
        rule: entry.rule.clone(),
        verdict: if entry.denied { "deny" } else { "allow" }.to_owned(),
        reason: entry.reason.clone(),
        bytes_up: entry.bytes_up,
        bytes_down: entry.bytes_down,
        duration_ms: entry.duration.as_secs_f64() * 1000.0,
        pid: owner.map(|owner| owner.pid),
        program: owner.map(|owner| owner.program.clone()),
        process_id: owner.and_then(|owner| owner.process.as_ref()).map(ToString::to_string),
    }
}

pub(crate) fn approval(pending: &PendingApproval) -> v1::Approval {
    let (method, path) = pending.request.clone().unzip();
    v1::Approval {
        approval_id: pending.id.clone(),
        sandbox_id: pending.sandbox.to_string(),
        host: pending.host.clone(),
        address: pending.address.map(|address| address.to_string()),
        port: pending.port.into(),
        transport: pending.transport.clone(),
        method,
        path,
        rule: pending.rule.clone(),
        asked_at: Some(timestamp(pending.asked_at)),
        until: Some(timestamp(pending.until)),
    }
}

pub(crate) fn approval_answer(word: &str) -> Result<ApprovalAnswer> {
    match word {
        "once" => Ok(ApprovalAnswer::Once),
        "sandbox" => Ok(ApprovalAnswer::Sandbox),
        "always" => Ok(ApprovalAnswer::Always),
        "deny" => Ok(ApprovalAnswer::Deny),
        _ => Err(Problem::invalid(format!("`{}` is no answer", shown(word)))
            .with_remedy("answer `once`, `sandbox`, `always` or `deny`")),
    }
}
