//! Changing what a sandbox may reach while it runs.

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_egress::Rules;
use belljar_policy::{HostPattern, NetworkMode};
use ipnet::IpNet;

use super::{Network, mode, policy};
use crate::engine::Inner;
use crate::store::{SandboxRecord, State};
use crate::time::duration_ms;
use crate::{Error, Result};

/// More entries are no list that somebody reads.
const MAX_ENTRIES: usize = 1024;

/// What is to change; everything else stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkChange {
    pub mode: Option<NetworkMode>,
    /// In place of what is allowed.
    pub replace: Option<Vec<String>>,
    /// No longer denied, and allowed.
    pub allow: Vec<String>,
    /// No longer allowed, and denied even where a wider entry would allow it.
    pub deny: Vec<String>,
    /// In place of the addresses that are not public and may be reached.
    pub cidrs: Option<Vec<String>>,
    /// In place of how long is waited for somebody to allow what nothing names; zero: not at all.
    pub ask: Option<Duration>,
}

/// Changes the rules of a sandbox: on record first, then at its doors, where flows that are no longer allowed end.
pub(crate) async fn change(
    inner: &Arc<Inner>,
    mut sandbox: SandboxRecord,
    change: NetworkChange,
) -> Result<SandboxRecord> {
    if !sandbox.details.network.doors {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("sandbox `{}` was made without a network", sandbox.id),
        )
        .with_remedy("create one with `--network allowlist` or `--network full`"));
    }
    let _turn = inner.gates.changing().await;
    // What somebody else changed meanwhile is not to be lost.
    if let Some(fresh) = inner.store.sandbox(&sandbox.id).await? {
        sandbox = fresh;
    }
    let widened = change.mode.is_some_and(|mode| mode != NetworkMode::None)
        || change.replace.is_some()
        || !change.allow.is_empty()
        || change.cidrs.is_some()
        || change.ask.is_some();
    let details = &mut sandbox.details;
    if let Some(mode) = change.mode {
        details.network_mode = mode.as_str().to_owned();
    }
    let network = &mut details.network;
    if let Some(replace) = change.replace {
        network.allow = normal(&replace)?;
        network.deny.clear();
    }
    for host in normal(&change.allow)? {
        network.deny.retain(|known| *known != host);
        network.allow.push(host);
    }
    for host in normal(&change.deny)? {
        if HostPattern::parse(&host)?.path().is_some() {
            return Err(Error::new(
                Code::InvalidNetworkRule,
                format!("`{host}` has a path; only whole hosts can be denied"),
            ));
        }
        network.allow.retain(|known| *known != host);
        network.deny.push(host);
    }
    if let Some(cidrs) = &change.cidrs {
        network.cidrs =
            cidrs.iter().map(|text| Ok(cidr(text)?.to_string())).collect::<Result<_>>()?;
    }
    if let Some(ask) = change.ask {
        network.ask_ms = Some(duration_ms(ask)).filter(|ask| *ask > 0);
    }
    for list in [&mut network.allow, &mut network.deny] {
        list.sort();
        list.dedup();
        if list.len() > MAX_ENTRIES {
            return Err(Error::new(
                Code::InvalidNetworkRule,
                format!("the list has more than {MAX_ENTRIES} entries"),
            ));
        }
    }
    let mode = mode(&sandbox);
    let network = &sandbox.details.network;
    if mode == NetworkMode::Full && !network.allow.is_empty() {
        return Err(Error::new(
            Code::ConflictingOptions,
            "hosts were allowed, but the network mode is `full`",
        )
        .with_remedy("everything public is allowed already; name private addresses as CIDRs"));
    }
    let policy = policy(inner, &sandbox).await?;
    if policy.is_some() && widened {
        return Err(Error::new(
            Code::ConflictingOptions,
            format!("sandbox `{}` runs under a policy, which says what it may reach", sandbox.id),
        )
        .with_remedy(
            "hosts can be denied; to allow more, change the policy and make a new sandbox",
        ));
    }
    let rules = network.rules(mode, policy.as_ref().map(|policy| &policy.document))?;
    enforceable(inner, &sandbox, &rules).await?;
    inner.store.redescribe(&sandbox.id, &sandbox.details).await?;
    inner.gates.with(&sandbox.id, |gate| gate.set_rules(rules));
    Ok(sandbox)
}

/// Refuses what would be on record and hold nowhere.
async fn enforceable(inner: &Inner, sandbox: &SandboxRecord, rules: &Rules) -> Result<()> {
    let id = &sandbox.id;
    if rules.inspects() && inner.store.authority(id).await?.is_none() {
        return Err(Error::new(
            Code::NotEnforceable,
            format!("requests of sandbox `{id}` cannot be looked into: it was made without rules that need that, so its programs trust no authority for it"),
        )
        .with_remedy("allow the whole host, or create a sandbox with the path among its rules"));
    }
    // Whoever holds the doors must hear of it; if nobody does, that is for us to do.
    inner.open_gate(sandbox).await?;
    let running = matches!(sandbox.state, State::Ready | State::Paused);
    if running && !inner.gates.holds(id) {
        return Err(Error::new(
            Code::SandboxNotReady,
            format!("another process holds the doors of sandbox `{id}`"),
        )
        .with_remedy("ask the server of this state directory, not an engine beside it"));
    }
    Ok(())
}

pub(crate) fn show(inner: &Inner, sandbox: &SandboxRecord) -> Network {
    let details = &sandbox.details;
    Network {
        mode: details.network_mode.clone(),
        allow: details.network.allow.clone(),
        deny: details.network.deny.clone(),
        cidrs: details.network.cidrs.clone(),
        ask: details.network.ask_ms.map(Duration::from_millis),
        callback: details.network.callback(),
        enforcement: details.network_enforcement.clone(),
        open: inner.gates.with(&sandbox.id, |gate| gate.counts().open),
    }
}

fn normal(hosts: &[String]) -> Result<Vec<String>> {
    hosts.iter().map(|host| Ok(HostPattern::parse(host)?.to_string())).collect()
}

/// A range of addresses, or one.
pub fn cidr(text: &str) -> Result<IpNet> {
    let one = text.parse::<std::net::IpAddr>().map(IpNet::from);
    one.or_else(|_| text.parse()).map(|net| net.trunc()).map_err(|_| {
        Error::new(
            Code::InvalidNetworkRule,
            format!("`{}` is no range of addresses", belljar_policy::shown(text)),
        )
        .with_remedy("write `10.0.0.0/8`, `fd00::/8` or a single address")
    })
}
