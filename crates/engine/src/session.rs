//! The sandbox of a run: an automatic one that is used again, a named one, one that exists, or one of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxName, TenantId};

use crate::create::{Life, create};
use crate::destroy::{Gone, PROCESS_ENDED, reap, settle};
use crate::engine::Inner;
use crate::ensure::ensure;
use crate::lock::FileLock;
use crate::plan::Plan;
use crate::policy;
use crate::store::{Owner, SandboxRecord, State};
use crate::{Asker, CreateRequest, Error, Result, Sandbox, Scope, SessionRequest};

/// How long a name may belong to sandboxes that are being made or are just ending.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Whoever tidies up holds a free lock for a moment; only one that is held longer is in use.
const BLINK: Duration = Duration::from_millis(5);

/// A sandbox that a run may use, for as long as this value lives.
pub struct Session {
    pub sandbox: Sandbox,
    /// Made for this run, now.
    pub created: bool,
    /// The automatic session was busy, so this is a fresh sandbox beside it.
    pub overflow: bool,
    pub name: Option<String>,
    /// Names of environment variables of the request that were refused. Where the sandbox existed before, the request's
    /// environment is not in it: give variables to the command.
    pub stripped_environment: Vec<String>,
    /// The sandbox ends with this session. [`Session::end`] does that and waits; dropping the session leaves it to the
    /// background. Destroying it through the engine is fine too.
    pub destroy_after: bool,
    /// The sandbox ends with a process, whatever becomes of this session.
    handed_over: bool,
    inner: Arc<Inner>,
    /// Says that the automatic session is busy.
    busy: Option<FileLock>,
}

impl Session {
    /// Ends the session: an ephemeral or overflow sandbox is destroyed, an automatic one is free for the next run.
    pub async fn end(mut self) -> Result<()> {
        if std::mem::take(&mut self.destroy_after) {
            reap(&self.inner, &self.sandbox.id, self.why()).await?;
        }
        Ok(())
    }

    /// Why the sandbox ends with this session.
    fn why(&self) -> &'static str {
        if self.handed_over { PROCESS_ENDED } else { "its session has ended" }
    }

    /// Makes a sandbox that would end with this session end with a process in it: it then outlives the engine, and
    /// whichever engine sees the end of the process destroys it.
    pub async fn hand_over(&mut self, process: &ProcessId) -> Result<()> {
        if self.destroy_after {
            let owner = Owner::Process(process.clone()).to_text();
            self.inner.store.own(&self.sandbox.id, &owner).await?;
            self.handed_over = true;
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.destroy_after || self.handed_over {
            return;
        }
        let (inner, id, why) = (Arc::clone(&self.inner), self.sandbox.id.clone(), self.why());
        // Without a runtime nobody can wait; the next process that opens the state directory sees that the owner is
        // gone.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.inner.background.spawn(async move {
                if let Err(error) = reap(&inner, &id, why).await {
                    tracing::debug!(%error, sandbox = %id, "left for the next recovery");
                }
            });
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("sandbox", &self.sandbox.id)
            .field("created", &self.created)
            .field("overflow", &self.overflow)
            .finish_non_exhaustive()
    }
}

pub(crate) async fn session(
    inner: &Arc<Inner>,
    asker: &Asker,
    scope: &Scope,
    request: SessionRequest,
) -> Result<Session> {
    if !matches!(request, SessionRequest::Existing(_)) {
        scope.may_create()?;
    }
    let tenant = scope.tenant();
    match request {
        SessionRequest::Existing(reference) => existing(inner, scope, &reference).await,
        SessionRequest::Ephemeral(request) => {
            let request = policy::govern(inner, &tenant, &request).await?;
            ephemeral(inner, asker, &tenant, &request).await
        }
        SessionRequest::Named(request) => {
            let request = policy::govern(inner, &tenant, &request).await?;
            named_with(inner, asker, &tenant, request, None).await
        }
        SessionRequest::Automatic(request) => {
            let request = policy::govern(inner, &tenant, &request).await?;
            automatic(inner, asker, &tenant, request).await
        }
    }
}

async fn existing(inner: &Arc<Inner>, scope: &Scope, reference: &str) -> Result<Session> {
    let record = inner.find(scope, reference).await?;
    let live = inner.live(&record.id).await?;
    live.connection(inner).await?;
    Ok(found(inner, record, Vec::new()))
}

async fn ephemeral(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    request: &CreateRequest,
) -> Result<Session> {
    let plan = Plan::new(inner, tenant, request).await?;
    let stripped = plan.stripped_environment.clone();
    let record = create(inner, asker, tenant, request, plan, Life::Ephemeral).await?;
    let mut session = found(inner, record, stripped);
    session.created = true;
    session.destroy_after = true;
    ensure(inner, asker, &session.sandbox.id, &request.ensure).await?;
    Ok(session)
}

async fn automatic(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    mut request: CreateRequest,
) -> Result<Session> {
    let plan = Plan::new(inner, tenant, &request).await?;
    let name = format!("auto-{}", plan.shape);
    let path = inner.directory.session_lock(tenant, &name);
    let busy = FileLock::acquire(&path, BLINK).await.map_err(|e| Error::state("lock", &path, e))?;
    let Some(busy) = busy else {
        request.name = None;
        let mut session = ephemeral(inner, asker, tenant, &request).await?;
        session.overflow = true;
        return Ok(session);
    };
    request.name = Some(SandboxName::parse(&name)?);
    let mut session = named_with(inner, asker, tenant, request, Some(plan)).await?;
    session.busy = Some(busy);
    Ok(session)
}

/// Gets the sandbox of the request's name, or makes it. `plan` is one that was made already.
async fn named_with(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    request: CreateRequest,
    mut plan: Option<Plan>,
) -> Result<Session> {
    let Some(name) = request.name.clone() else {
        return Err(Error::new(Code::InvalidArgument, "a named session needs a name"));
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(record) = inner.store.sandbox_named(tenant, name.as_str()).await? {
            let Some(record) = usable(inner, record).await? else { continue };
            refuse_other_policy(&name, &record, &request)?;
            if request.same_shape {
                let wanted = match plan.take() {
                    Some(plan) => plan,
                    None => Plan::new(inner, tenant, &request).await?,
                };
                refuse_other_shape(&name, &record, &wanted)?;
            }
            let (_, stripped) = request.environment.clone().strip();
            let session = found(inner, record, stripped);
            ensure(inner, asker, &session.sandbox.id, &request.ensure).await?;
            return Ok(session);
        }
        let plan = match plan.take() {
            Some(plan) => plan,
            None => Plan::new(inner, tenant, &request).await?,
        };
        let stripped = plan.stripped_environment.clone();
        match create(inner, asker, tenant, &request, plan, Life::Lasting).await {
            Ok(record) => {
                let mut session = found(inner, record, stripped);
                session.created = true;
                ensure(inner, asker, &session.sandbox.id, &request.ensure).await?;
                return Ok(session);
            }
            // Somebody made it between our looking and our making.
            Err(error) if error.code() == Code::SandboxExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(
        Code::SandboxNotReady,
        format!("sandbox `{name}` has been in the making for too long"),
    ))
}

/// A sandbox keeps what it was created with; asking for something else must not look as if it was granted.
fn refuse_other_shape(name: &SandboxName, record: &SandboxRecord, wanted: &Plan) -> Result<()> {
    if record.details.shape == wanted.shape {
        return Ok(());
    }
    Err(Error::new(
        Code::ConflictingOptions,
        format!("sandbox `{name}` exists and was created with other options"),
    )
    .with_remedy("leave the options out, give those it was created with, or use another name"))
}

/// A sandbox runs under one policy for its whole life.
fn refuse_other_policy(
    name: &SandboxName,
    record: &SandboxRecord,
    request: &CreateRequest,
) -> Result<()> {
    let Some(wanted) = policy::resolved(request) else { return Ok(()) };
    let policy = record.details.policy.as_ref();
    if policy.is_some_and(|policy| policy.digest == wanted.digest) {
        return Ok(());
    }
    let has = policy.map_or("no policy".to_owned(), |policy| format!("policy `{}`", policy.name));
    Err(Error::new(
        Code::ConflictingOptions,
        format!("sandbox `{name}` exists with {has}, not with `{}` as it is now", wanted.name),
    )
    .with_remedy("leave the policy out, use another name, or destroy the sandbox first"))
}

/// The sandbox if it can be used. `None`: it has ended, look again.
async fn usable(inner: &Arc<Inner>, record: SandboxRecord) -> Result<Option<SandboxRecord>> {
    let id = &record.id;
    match record.state {
        State::Ready => {
            let connected = match inner.live(id).await {
                Ok(live) => live.connection(inner).await.map(drop),
                Err(error) => Err(error),
            };
            match connected {
                Ok(()) => Ok(Some(record)),
                Err(error) if error.code() == Code::SandboxGone => {
                    let gone = Gone::found(inner, &record).await?;
                    reap(inner, id, gone.reason()).await?;
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        }
        State::Creating => {
            // Until it is ready, or its maker has died and it is settled.
            settle(inner, id).await?;
            tokio::time::sleep(LOOK_AGAIN).await;
            Ok(None)
        }
        State::Paused => {
            Err(Error::new(Code::SandboxNotReady, format!("sandbox `{id}` is paused"))
                .with_remedy("resume it first"))
        }
        State::Destroying | State::Destroyed | State::Failed => Ok(None),
    }
}

fn found(inner: &Arc<Inner>, record: SandboxRecord, stripped: Vec<String>) -> Session {
    let sandbox = Sandbox::from(record);
    Session {
        name: sandbox.name.clone(),
        sandbox,
        created: false,
        overflow: false,
        stripped_environment: stripped,
        destroy_after: false,
        handed_over: false,
        inner: Arc::clone(inner),
        busy: None,
    }
}
