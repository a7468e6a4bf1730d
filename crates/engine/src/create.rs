//! Creating a sandbox.
//!
//! Everything that can be refused was refused by the plan. From the first record on, whatever happens (an error, a
//! caller that goes away, SIGKILL) ends in a sandbox that is ready or in nothing at all: each step is in the journal
//! before it happens, and the undo of all of them is the backend's `stop`.

use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::{SandboxName, TenantId};

use crate::agent::{AgentError, Identity, configuration};
use crate::engine::Inner;
use crate::fault::point;
use crate::live::{self, Live};
use crate::network::authority;
use crate::plan::{Plan, network_enforcement};
use crate::store::{End, EnforcementRecord, KeyClaim, Reserved, SandboxRecord, State};
use crate::time::{duration_ms, now_ms};
use crate::transition::{Work, end, release};
use crate::{Asker, CreateRequest, Error, Result, policy, volume};

/// How long a sandbox lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until it is destroyed or its lease ends.
    Lasting,
    /// As long as the engine that made it.
    Ephemeral,
    /// Lasting once it is complete; until [`crate::store::SandboxStore::filled`] it ends with the engine that makes it.
    Filling,
}

pub(crate) async fn create(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    request: &CreateRequest,
    plan: Plan,
    life: Life,
) -> Result<SandboxRecord> {
    let created = create_once(inner, asker, tenant, request, plan, life, None).await?;
    Ok(created.expect("without a key nothing was created before"))
}

/// Creates a sandbox unless somebody has the key already: then `None`.
pub(crate) async fn create_once(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    request: &CreateRequest,
    plan: Plan,
    life: Life,
    key: Option<&KeyClaim>,
) -> Result<Option<SandboxRecord>> {
    let id = plan.id().clone();
    let worker = inner.presence.token()?.to_owned();
    point("create.present");

    let now = now_ms();
    let mut record = SandboxRecord {
        id: id.clone(),
        tenant: tenant.clone(),
        name: request.name.as_ref().map(SandboxName::as_str).map(str::to_owned),
        backend: plan.backend.name().to_owned(),
        state: State::Creating,
        owner: (life != Life::Lasting).then(|| worker.clone()),
        worker: Some(worker),
        created_at: now,
        used_at: now,
        idle_ms: plan.idle.map(duration_ms),
        hard_ms: request.hard_limit.map(duration_ms),
        hard_from: now,
        failure: None,
        details: plan.details(request, &[]),
    };
    policy::permit_create(inner, asker, &record, request).await?;
    let mut layers = None;
    loop {
        match inner.store.reserve(&record, key, layers.as_deref()).await? {
            Reserved::New => break,
            Reserved::Known => return Ok(None),
            Reserved::Unwritten => layers = policy::written(request).await?,
        }
    }
    point("create.reserved");

    let _work = Work::on(inner, &id);
    match build(inner, request, plan, life, &mut record).await {
        Ok(live) => {
            inner.remember(live);
            record.state = State::Ready;
            record.worker = None;
            Ok(Some(record))
        }
        Err(error) => {
            // The backend undoes its own failed start; for every later failure this is the undo. Where it fails, the
            // record stays as it is, and the next recovery finishes the work.
            inner.gates.close(&id);
            let undone = inner.backends.get(&record.backend)?.stop(&id).await;
            match undone {
                Ok(()) => end(inner, &id, End::Failed(describe(&error))).await?,
                Err(_) => release(inner, &id).await?,
            }
            Err(error)
        }
    }
}

async fn build(
    inner: &Arc<Inner>,
    request: &CreateRequest,
    plan: Plan,
    life: Life,
    record: &mut SandboxRecord,
) -> Result<Live> {
    let id = plan.id().clone();
    point("create.starting");
    let Plan { backend, mut spec, mut environment, workdir, idle, class, .. } = plan;
    if inner.gates.inspects(inner, record).await? {
        spec.covers = authority::establish(inner, &id, &spec.root, &mut environment).await?;
    }
    let (hostname, programs) = (spec.hostname.clone(), spec.programs.clone());
    let has_tools = spec.tools;
    let running = backend.start(spec).await.map_err(not_started)?;
    inner.reserve.count(running.was_ready);
    point("create.starting.done");
    // Before the first command, and before anybody is told of the sandbox.
    inner.gates.open(inner, record).await?;

    let details = &mut record.details;
    details.network_enforcement = network_enforcement(&running.enforcement);
    let volume = request.volume.as_ref().map(volume::rule);
    let rules = running.enforcement.iter().chain(&volume);
    details.enforcement = rules.map(EnforcementRecord::from).collect();
    details.class = class.as_str().to_owned();
    point("create.configuring");
    let identity = Identity {
        user: request.user,
        hostname: &hostname,
        workdir: workdir.as_deref(),
        environment: &environment,
        programs: programs.as_ref(),
        idle,
        hard: request.hard_limit,
        network: details.network.doors,
    };
    let configure = configuration(running.agent, &identity);
    let (stream, configure) = (running.stream, Some(configure));
    let connection = live::open(inner, &id, &record.tenant, stream, configure, has_tools)
        .map_err(not_configured)?;
    // Nobody but its maker knows of an ephemeral sandbox, so its first command may be on the way before the agent has
    // answered; a configuration that failed then fails the command. Others are only told of what is known to work.
    if life != Life::Ephemeral {
        connection.configured().await.map_err(not_configured)?;
    }
    point("create.configuring.done");

    inner.store.ready(&id, details).await?;
    point("create.ready");
    Ok(Live::started(id, record.tenant.clone(), backend, connection))
}

/// A failure of the machinery is named after what the caller wanted; a refusal speaks for itself.
fn not_started(error: belljar_backend::Error) -> Error {
    match error.code {
        Code::StartFailed | Code::LauncherFailed => {
            let mut error = Error::from(error);
            let remedy = error.take_remedy();
            let outer = Error::new(error.code(), "the sandbox could not be started");
            let outer = match remedy {
                Some(remedy) => outer.with_remedy(remedy),
                None => outer,
            };
            outer.with_source(error)
        }
        _ => error.into(),
    }
}

fn not_configured(error: AgentError) -> Error {
    match error {
        // A configuration that does not fit is the caller's environment: everything else is small.
        AgentError::TooLarge => error.into(),
        error => Error::new(Code::StartFailed, "the agent could not be configured")
            .with_source(Error::from(error)),
    }
}

/// The whole chain of causes in one line, for the record.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
