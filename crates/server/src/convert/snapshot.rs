//! Snapshots as callers see them, and what is restored from one.

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{CreateRequest, Snapshot};
use belljar_policy::{NetworkMode, TemplateSpec};

use super::{create_request, timestamp};
use crate::caller::Caller;
use crate::problem::{Problem, Result};

pub(crate) fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    let paths = snapshot.paths.iter();
    v1::Snapshot {
        snapshot_id: snapshot.id.clone(),
        name: snapshot.name.clone(),
        sandbox_id: snapshot.sandbox.as_str().to_owned(),
        tenant: snapshot.tenant.to_string(),
        template: snapshot.template.clone(),
        created_at: Some(timestamp(snapshot.created_at)),
        bytes: snapshot.bytes,
        digest: snapshot.digest.clone(),
        paths: paths.map(|path| path.to_string_lossy().into_owned()).collect(),
        labels: snapshot.labels.clone(),
        skipped: snapshot.skipped,
        content_bytes: snapshot.content_bytes,
        policy: snapshot.policy.as_ref().map(super::policy::reference),
    }
}

/// What the caller wants the new sandbox to be, and as it was in everything else.
pub(crate) async fn restored(
    caller: &Caller,
    snapshot: &Snapshot,
    wire: &v1::CreateSandboxRequest,
) -> Result<CreateRequest> {
    if wire.get_or_create {
        return Err(Problem::new(Code::ConflictingOptions, "restoring always makes a new sandbox")
            .with_remedy("leave out `get_or_create`"));
    }
    if wire.tenant.as_deref().is_some_and(|tenant| tenant != snapshot.tenant.as_str()) {
        return Err(Problem::new(
            Code::ConflictingOptions,
            format!("the sandbox is of the snapshot's own tenant `{}`", snapshot.tenant),
        )
        .with_remedy("leave out `tenant`"));
    }
    let recorded = &snapshot.recorded;
    let mut create = create_request(caller, wire).await?;
    create.idempotency_key.clone_from(&wire.idempotency_key);
    if wire.template.is_none() {
        create.template = recorded.template.clone();
    }
    let of_the_host = matches!(create.template, TemplateSpec::Rootfs(_) | TemplateSpec::Image(_));
    if !caller.is_admin() && of_the_host {
        return Err(Problem::new(
            Code::PermissionDenied,
            "the snapshot's template is something of the host, which needs the role `admin`",
        )
        .with_remedy("name another `template`"));
    }
    if wire.network.is_none() {
        create.network = recorded.network.clone();
        // Another policy says itself what may be reached, but what could reach nothing still cannot.
        create.network_asked = match wire.policy {
            Some(_) => recorded.network.mode == NetworkMode::None,
            None => recorded.network_asked,
        };
    }
    if wire.user.is_none() {
        create.user = recorded.user;
    }
    // Whoever waives isolation altogether has no use for a floor.
    if wire.isolation.is_none() && !wire.allow_no_isolation {
        create.isolation_floor = recorded.isolation_floor;
    }
    let asked = wire.limits.unwrap_or_default();
    let (limits, before) = (&mut create.limits, &recorded.limits);
    if asked.memory_bytes.is_none() {
        limits.memory_bytes = before.memory_bytes;
    }
    if asked.milli_cpus.is_none() {
        limits.cpu_millis = before.cpu_millis;
    }
    if asked.pids.is_none() {
        limits.pids = before.pids;
    }
    if asked.disk_bytes.is_none() {
        limits.disk_bytes = before.disk_bytes;
        limits.disk_inodes = before.disk_inodes;
    }
    Ok(create)
}
