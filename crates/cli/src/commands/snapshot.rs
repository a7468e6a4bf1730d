//! `belljar snapshot`: the files of a sandbox, kept; new sandboxes from them.

use belljar_api::v1;
use belljar_policy::limits::format_bytes;
use serde::Serialize;

use super::Done;
use super::inspect::policy_name;
use crate::args::{SnapshotArgs, SnapshotCommand, SnapshotRestoreArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, note, print, print_json, time};
use crate::request;

pub(crate) async fn snapshot(context: &Context, args: SnapshotArgs) -> Result<Done, Failure> {
    match args.command {
        SnapshotCommand::Create { sandbox, name, label, path, json } => {
            let labels = request::labels(&label)?;
            let request = v1::CreateSnapshotRequest { sandbox, name, labels, paths: path };
            create(context, request, json).await
        }
        SnapshotCommand::List { sandbox, label, tenant, json } => {
            let labels = request::labels(&label)?;
            let request =
                v1::ListSnapshotsRequest { sandbox, labels, tenant, ..Default::default() };
            list(context, request, json).await
        }
        SnapshotCommand::Inspect { snapshot, json } => inspect(context, snapshot, json).await,
        SnapshotCommand::Restore(args) => restore(context, *args).await,
        SnapshotCommand::Rm { snapshot, json } => remove(context, snapshot, json).await,
    }
}

async fn create(
    context: &Context,
    request: v1::CreateSnapshotRequest,
    json: bool,
) -> Result<Done, Failure> {
    let snapshot = context
        .with_client(async |mut client| Ok(client.snapshots.create_snapshot(request).await?))
        .await?
        .into_inner();
    if snapshot.skipped > 0 {
        let count = snapshot.skipped;
        note(context.quiet, &format!("{count} left out: pipes, sockets, or not readable"));
    }
    if json {
        print_json(&snapshot)?;
    } else {
        print(&format!("{}\n", snapshot.snapshot_id))?;
    }
    Ok(Done::Success)
}

async fn list(
    context: &Context,
    mut request: v1::ListSnapshotsRequest,
    json: bool,
) -> Result<Done, Failure> {
    let snapshots = context
        .with_client(async |mut client| {
            let mut found = Vec::new();
            loop {
                let page = client.snapshots.list_snapshots(request.clone()).await?.into_inner();
                found.extend(page.snapshots);
                request.page_token = page.next_page_token;
                if request.page_token.is_none() {
                    return Ok(found);
                }
            }
        })
        .await?;
    if json {
        print_json(&snapshots)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["ID", "NAME", "SANDBOX", "TEMPLATE", "STORED", "AGE"]);
    for snapshot in &snapshots {
        table.row([
            snapshot.snapshot_id.as_str(),
            snapshot.name.as_deref().unwrap_or_default(),
            &snapshot.sandbox_id,
            &snapshot.template,
            &format_bytes(snapshot.bytes),
            &age(snapshot.created_at.as_ref()),
        ]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

async fn inspect(context: &Context, snapshot_id: String, json: bool) -> Result<Done, Failure> {
    let request = v1::GetSnapshotRequest { snapshot_id };
    let snapshot = context
        .with_client(async |mut client| Ok(client.snapshots.get_snapshot(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&snapshot)?;
        return Ok(Done::Success);
    }
    print(&render(&snapshot))?;
    Ok(Done::Success)
}

fn render(snapshot: &v1::Snapshot) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("id", &snapshot.snapshot_id);
    line("name", snapshot.name.as_deref().unwrap_or("-"));
    line("sandbox", &snapshot.sandbox_id);
    line("tenant", &snapshot.tenant);
    line("template", &snapshot.template);
    line("created", &time(snapshot.created_at.as_ref()));
    line("directories", &snapshot.paths.join(" "));
    line("files", &format_bytes(snapshot.content_bytes));
    line("stored", &format_bytes(snapshot.bytes));
    line("left out", &snapshot.skipped.to_string());
    line("digest", &snapshot.digest);
    if let Some(policy) = &snapshot.policy {
        line("policy", &format!("{} ({})", policy_name(policy), policy.digest));
    }
    for (key, value) in &snapshot.labels {
        line("label", &format!("{key}={value}"));
    }
    text
}

async fn restore(context: &Context, args: SnapshotRestoreArgs) -> Result<Done, Failure> {
    let create = wanted(context, &args)?;
    let request =
        v1::RestoreSnapshotRequest { snapshot_id: args.snapshot.clone(), create: Some(create) };
    let sandbox = context
        .with_client(async |mut client| Ok(client.snapshots.restore_snapshot(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&sandbox)?;
    } else {
        print(&format!("{}\n", sandbox.sandbox_id))?;
    }
    Ok(Done::Success)
}

/// Only what was typed: the rest is as it was in the snapshot's sandbox, whatever this user's settings are.
fn wanted(
    context: &Context,
    args: &SnapshotRestoreArgs,
) -> Result<v1::CreateSandboxRequest, Failure> {
    let (options, name) = (&args.options, args.name.as_deref());
    let mut create = request::create_request(&context.settings, name, options, Vec::new())?;
    if options.template.is_none() {
        create.template = None;
    }
    if options.network.is_none()
        && options.profile.is_none()
        && options.allow.is_empty()
        && options.allow_cidr.is_empty()
        && options.network_ask.is_none()
        && options.network_callback.is_empty()
    {
        create.network = None;
    }
    // The policy comes with the snapshot, and a default would ask for more than it grants.
    create.timeout_secs = request::timeout(&context.settings, true)?;
    let typed = |value: Option<u64>, typed: &Option<String>| value.filter(|_| typed.is_some());
    create.limits = create.limits.map(|limits| v1::Limits {
        memory_bytes: typed(limits.memory_bytes, &options.memory),
        milli_cpus: typed(limits.milli_cpus, &options.cpus),
        pids: typed(limits.pids, &options.pids),
        disk_bytes: typed(limits.disk_bytes, &options.disk),
    });
    Ok(create)
}

#[derive(Serialize)]
struct Removed {
    removed: String,
}

async fn remove(context: &Context, snapshot_id: String, json: bool) -> Result<Done, Failure> {
    let request = v1::RemoveSnapshotRequest { snapshot_id };
    let removed = context
        .with_client(async |mut client| Ok(client.snapshots.remove_snapshot(request).await?))
        .await?
        .into_inner()
        .snapshot_id;
    if json {
        print_json(&Removed { removed })?;
    }
    Ok(Done::Success)
}
