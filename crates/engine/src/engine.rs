//! The engine itself: what it holds, and the calls it answers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_backend::{FetchStep, Probe};
use belljar_policy::{ProcessId, SandboxId, TemplateSpec, TenantId};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::backends::Backends;
use crate::background::{Background, to_the_end};
use crate::create::Life;
use crate::destroy::{Gone, destroy, has_ended, reap};
use crate::files::{Files, Spools};
use crate::live::Live;
use crate::log::{LogReader, Offsets, Written, bound_logs};
use crate::network::decider::Deciding;
use crate::network::{self, Gates};
use crate::policy::{FileGuard, PolicyCache};
use crate::presence::Presence;
use crate::query::Place;
use crate::reserve::Reserve;
use crate::secrets::{SecretSources, Vault};
use crate::state_dir::StateDirectory;
use crate::store::{
    End, KeyClaim, Listing, ProcessRecord, SandboxRecord, SqliteStore, State, Store, check_usable,
};
use crate::{
    ApprovalAnswer, Artifact, Asker, AuditLog, BackendChoice, Counts, CreateRequest, Decider,
    EngineOptions, Error, Events, ExecRequest, Explanation, Follower, Judged, LayerChange,
    LeakReport, Learned, Lease, Network, NetworkChange, NetworkLog, NetworkQuery, Page,
    PendingApproval, Policies, Process, ProcessControl, ProcessInfo, ProcessQuery, Question,
    Result, Sandbox, SandboxPolicy, SandboxQuery, Scope, Session, SessionRequest, Started,
    TemplateInfo, Tenants, ToolHost,
};
use crate::{
    artifacts, ensure, explain, hold, layer, leaks, once, policy, process, query, recovery,
    secrets, session, template, tools,
};

/// Removing a sandbox takes milliseconds, unless something in it cannot be killed; the next command then goes on.
const CLOSING: Duration = Duration::from_secs(10);

/// This many ends make about a megabyte of write-ahead log.
const MAINTAIN_EVERY: u32 = 64;

/// A door to everything below one state directory that its scope lets see. Cheap to clone; all clones are the same
/// engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    pub(crate) scope: Scope,
    /// Who asks, for records of what is decided on the way.
    pub(crate) asker: Arc<Asker>,
}

pub(crate) struct Inner {
    pub(crate) directory: StateDirectory,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) backends: Backends,
    pub(crate) audit: AuditLog,
    pub(crate) background: Background,
    pub(crate) presence: Presence,
    /// What sandboxes run under.
    pub(crate) policies: PolicyCache,
    /// The networks of sandboxes.
    pub(crate) gates: Gates,
    pub(crate) reserve: Reserve,
    /// By processes that have ended.
    pub(crate) written: Arc<Written>,
    /// The processes that this engine attends to.
    pub(crate) attended: Arc<process::Registry>,
    pub(crate) turns: process::Turns,
    /// Archives on their way in.
    pub(crate) spools: Spools,
    /// How long records and logs of what has ended are kept.
    pub(crate) retention: Duration,
    /// Whether processes that nobody attends to are attended to by this engine.
    pub(crate) attends: bool,
    /// The task that looks after the state directory from time to time.
    caretaker: Mutex<Option<AbortHandle>>,
    home: Option<PathBuf>,
    pub(crate) vault: Arc<Vault>,
    live: Mutex<HashMap<SandboxId, Arc<Live>>>,
    /// Ends of sandboxes and processes.
    ends: AtomicU32,
    /// The store is being tidied.
    tidying: AtomicBool,
    /// Who decides about networks.
    pub(crate) deciding: Deciding,
    /// Who answers calls of tools.
    pub(crate) tool_host: OnceLock<Arc<dyn ToolHost>>,
}

// === impl Engine ===

impl Engine {
    /// Opens the state directory, making it where it is missing, and settles what interrupted processes left.
    pub async fn open(options: EngineOptions) -> Result<Self> {
        let inner = Self::open_alone(options).await?;
        if inner.attends {
            let caretaker = recovery::take_care(&inner).await;
            *inner.caretaker.lock().unwrap_or_else(PoisonError::into_inner) = Some(caretaker);
        } else {
            let sweeper = Arc::clone(&inner);
            inner.background.spawn(async move {
                if let Err(error) = recovery::sweep_in_turn(&sweeper).await {
                    tracing::warn!(%error, "looking after the state directory failed");
                }
            });
        }
        Ok(Self::unscoped(&inner))
    }

    /// As [`Engine::open`], and nothing goes on in it by itself.
    pub(crate) async fn open_alone(options: EngineOptions) -> Result<Arc<Inner>> {
        let directory = StateDirectory::open(&options.state_dir)?;
        let store = SqliteStore::open(&directory.database())?;
        let key = options.secrets_key.unwrap_or_else(|| secrets::default_key(directory.root()));
        let vault = Arc::new(Vault::new(key));
        let store: Arc<dyn Store> = Arc::new(store);
        let deciding = Deciding::default();
        let sources = SecretSources::new(Arc::clone(&store), Arc::clone(&vault), deciding.clone());
        let audit = AuditLog::of(directory.root());
        let inner = Arc::new(Inner {
            reserve: Reserve::default(),
            written: Arc::default(),
            gates: Gates::new(options.egress, audit.clone(), sources, deciding.clone(), &directory),
            deciding,
            audit,
            presence: Presence::new(directory.sessions()),
            policies: PolicyCache::default(),
            spools: Spools::new(&directory.trash()),
            backends: Backends::new(options.backends, directory.root().join("probes.json")),
            directory,
            store,
            background: Background::default(),
            attended: Arc::default(),
            turns: process::Turns::default(),
            retention: options.retention,
            attends: options.attend,
            caretaker: Mutex::default(),
            home: options.home,
            vault,
            live: Mutex::default(),
            ends: AtomicU32::new(0),
            tidying: AtomicBool::new(false),
            tool_host: OnceLock::new(),
        });
        inner.gates.owners.serve(&inner);
        inner.backends.recover().await;
        recovery::recover(&inner).await?;
        Ok(inner)
    }

    /// Looks at the logs of ended processes that are due, as an engine that attends does from time to time.
    #[doc(hidden)]
    pub async fn bound_logs(&self) -> Result<()> {
        loop {
            match bound_logs(&self.inner) {
                Some(look) => return look.await.expect("a look does not panic"),
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// The engine as its own parts see it.
    pub(crate) fn unscoped(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner), scope: Scope::All, asker: Arc::default() }
    }

    /// The same engine as a caller sees it: what lies outside its scope does not exist.
    #[must_use]
    pub fn scoped(&self, scope: Scope) -> Self {
        Self { inner: Arc::clone(&self.inner), scope, asker: Arc::clone(&self.asker) }
    }

    /// The same engine, with the name of who asks on the records of decisions.
    #[must_use]
    pub fn asked_by(mut self, asker: Asker) -> Self {
        self.asker = Arc::new(asker);
        self
    }

    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The directory that all of it is in.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        self.inner.directory.root()
    }

    /// What a request would give, with every rule and its mechanism. Nothing is made.
    pub async fn explain(&self, request: &CreateRequest) -> Result<Explanation> {
        self.scope.sees_tenant()?;
        explain::explain(&self.inner, &self.scope.tenant(), request).await
    }

    /// Creates a sandbox that lasts until it is destroyed or its lease ends.
    ///
    /// Where a command of `ensure` fails, the sandbox stays and the error says so.
    pub async fn create(&self, request: CreateRequest) -> Result<Sandbox> {
        self.scope.may_create()?;
        let (inner, tenant) = (Arc::clone(&self.inner), self.scope.tenant());
        let asker = Arc::clone(&self.asker);
        to_the_end(async move {
            let record = once::create(&inner, &asker, &tenant, &request, Life::Lasting).await?;
            ensure::ensure(&inner, &asker, &record.id, &request.ensure).await?;
            Ok(record.into())
        })
        .await
    }

    /// The sandbox of a run; see [`SessionRequest`].
    pub async fn session(&self, request: SessionRequest) -> Result<Session> {
        let (inner, scope) = (Arc::clone(&self.inner), self.scope.clone());
        let asker = Arc::clone(&self.asker);
        to_the_end(async move { session::session(&inner, &asker, &scope, request).await }).await
    }

    /// The sandboxes that the query means, oldest first.
    pub async fn list(&self, query: &SandboxQuery) -> Result<Page<Sandbox>> {
        let (after, limit) = (query::after(query.after.as_deref())?, query::limit(query.limit)?);
        // The pages that follow show what the first one found; an engine that lives long looks by itself.
        if after.is_none()
            && !self.inner.attends
            && let Err(error) = recovery::sweep(&self.inner).await
        {
            // A disk that is full keeps nobody from reading.
            tracing::warn!(%error, "looking after the state directory failed");
        }
        let listing = Listing { scope: &self.scope, query, after, limit };
        let records = self.inner.store.list(&listing).await?;
        Ok(query::page(records, limit, Sandbox::from, |last| Place {
            at: last.created_at,
            id: last.id.to_string(),
        }))
    }

    /// One sandbox, by name or id. By id, also one that has ended.
    pub async fn inspect(&self, reference: &str) -> Result<Sandbox> {
        let record = self.find(reference).await?;
        if record.state == State::Ready {
            let backend = self.inner.backends.get(&record.backend)?;
            if !backend.is_alive(&record.id).await? {
                let reason = Gone::found(&self.inner, &record).await?.reason();
                let (inner, id) = (Arc::clone(&self.inner), record.id.clone());
                // Who only looked may go away meanwhile.
                to_the_end(async move { reap(&inner, &id, reason).await }).await?;
                return Ok(self.find(record.id.as_str()).await?.into());
            }
        }
        Ok(record.into())
    }

    /// Whether a sandbox has not ended.
    pub async fn lives(&self, id: &SandboxId) -> Result<bool> {
        if self.inner.known_live(id).is_some() {
            return Ok(true);
        }
        let record = self.inner.store.sandbox(id).await?;
        Ok(record.is_some_and(|record| !has_ended(record.state)))
    }

    /// The id of a sandbox, by name or id.
    pub async fn identify(&self, reference: &str) -> Result<SandboxId> {
        Ok(self.locate(reference).await?.0)
    }

    /// The id of a sandbox, by name or id, and whose it is.
    pub async fn locate(&self, reference: &str) -> Result<(SandboxId, TenantId)> {
        // One that this engine talks to needs no look into the store.
        if let Ok(id) = SandboxId::parse(reference)
            && let Some(live) = self.inner.known_live(&id)
            && self.scope.sees(&live.tenant, &id)
        {
            return Ok((id, live.tenant.clone()));
        }
        let record = self.find(reference).await?;
        Ok((record.id, record.tenant))
    }

    /// Destroys a sandbox from any state. Destroying one again by its id is fine.
    pub async fn destroy(&self, reference: &str) -> Result<()> {
        let id = self.identify(reference).await?;
        let inner = Arc::clone(&self.inner);
        to_the_end(async move { destroy(&inner, &id, End::Destroyed(None)).await }).await
    }

    /// Stops everything in a sandbox where it stands. Pausing one that is paused is fine.
    pub async fn pause(&self, reference: &str) -> Result<Sandbox> {
        let id = self.find(reference).await?.id;
        let (inner, acted_on) = (Arc::clone(&self.inner), id.clone());
        to_the_end(async move { hold::pause(&inner, &acted_on).await }).await?;
        Ok(self.find(id.as_str()).await?.into())
    }

    /// Lets a paused sandbox go on; one that runs does anyway.
    pub async fn resume(&self, reference: &str) -> Result<Sandbox> {
        let id = self.find(reference).await?.id;
        let (inner, acted_on) = (Arc::clone(&self.inner), id.clone());
        to_the_end(async move { hold::resume(&inner, &acted_on).await }).await?;
        Ok(self.find(id.as_str()).await?.into())
    }

    /// What a sandbox may reach.
    pub async fn network(&self, reference: &str) -> Result<Network> {
        Ok(network::show(&self.inner, &self.find(reference).await?))
    }

    /// Changes what a sandbox may reach; flows that are no longer allowed are cut.
    pub async fn change_network(&self, reference: &str, change: NetworkChange) -> Result<Network> {
        let (inner, record) = (Arc::clone(&self.inner), self.find(reference).await?);
        to_the_end(async move {
            let record = network::change(&inner, record, change).await?;
            Ok(network::show(&inner, &record))
        })
        .await
    }

    /// What waits for somebody to allow it.
    #[must_use]
    pub fn approvals(&self, sandbox: Option<&SandboxId>) -> Vec<PendingApproval> {
        self.inner.gates.approvals.list(&self.scope, sandbox)
    }

    /// Answers for something that waits.
    pub async fn answer_approval(
        &self,
        id: &str,
        answer: ApprovalAnswer,
    ) -> Result<PendingApproval> {
        let pending = self.inner.gates.approvals.find(&self.scope, id)?;
        if answer == ApprovalAnswer::Always {
            let allow = vec![format!("{}:{}", pending.host, pending.port)];
            let change = NetworkChange { allow, ..NetworkChange::default() };
            self.change_network(pending.sandbox.as_str(), change).await?;
        }
        self.inner.gates.approvals.answer(id, answer)?;
        Ok(pending)
    }

    /// Decisions about the network since this engine was opened, by what was decided.
    #[must_use]
    pub fn network_decisions(&self) -> [(&'static str, u64); 4] {
        let [allowed, flows, names, requests] = self.inner.gates.decisions();
        [
            ("allowed", allowed),
            ("flow-denied", flows),
            ("name-denied", names),
            ("request-denied", requests),
        ]
    }

    /// Sandboxes since this engine was opened that were made of parts which were ready, and those that were not.
    #[must_use]
    pub fn reserve_use(&self) -> [(&'static str, u64); 2] {
        self.inner.reserve.counted()
    }

    /// What a sandbox wanted to reach and what came of it. By id, also of one that has ended.
    pub async fn network_log(&self, reference: &str, query: NetworkQuery) -> Result<NetworkLog> {
        let id = self.find(reference).await?.id;
        Ok(self.inner.gates.read_log(&id, query))
    }

    /// Changes a sandbox's lease; what is given starts anew from now.
    pub async fn extend(&self, reference: &str, lease: Lease) -> Result<Sandbox> {
        let record = self.find(reference).await?;
        policy::permit_lease(&self.inner, &record, lease).await?;
        let id = record.id;
        let (inner, acted_on) = (Arc::clone(&self.inner), id.clone());
        to_the_end(async move { hold::extend(&inner, &acted_on, lease).await }).await?;
        Ok(self.find(id.as_str()).await?.into())
    }

    /// Starts a command. Returns once it runs; a command that cannot be started is an error with its own code.
    pub async fn exec(&self, id: &SandboxId, request: ExecRequest) -> Result<Process> {
        self.visible(id).await?;
        let request = self.with_own_key(request)?;
        let permitted = policy::permit_exec(&self.inner, &self.asker, id, request).await?;
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        to_the_end(async move { process::start(&inner, &id, permitted).await }).await
    }

    /// Starts a command whose output goes to its log alone: nobody needs to read, and nobody holds it up. The sandbox is
    /// given by name or id.
    pub async fn start(&self, sandbox: &str, request: ExecRequest) -> Result<Started> {
        let id = self.identify(sandbox).await?;
        let request = self.with_own_key(request)?;
        let permitted = policy::permit_exec(&self.inner, &self.asker, &id, request).await?;
        let inner = Arc::clone(&self.inner);
        to_the_end(async move { process::start_detached(&inner, &id, permitted).await }).await
    }

    /// Idempotency keys are a tenant's. Who has one sandbox of it learns nothing of keys that were used for others, and takes
    /// none away.
    fn with_own_key(&self, mut request: ExecRequest) -> Result<ExecRequest> {
        if let Some(key) = &mut request.idempotency_key {
            KeyClaim::check(key)?;
            if let Scope::Sandbox { id, .. } = &self.scope {
                // No caller's key has a space in it.
                *key = format!("{id} {key}");
            }
        }
        Ok(request)
    }

    /// Follows a process from the given offsets on: what its log has, then live, then its end.
    pub async fn follow(&self, process: &ProcessId, from: Offsets) -> Result<Follower> {
        self.find_process(process).await?;
        Ok(Follower::new(&self.inner, process, from))
    }

    /// Waits for the end of a process; after `timeout` its record is returned as it is then.
    pub async fn wait(
        &self,
        process: &ProcessId,
        timeout: Option<Duration>,
    ) -> Result<ProcessInfo> {
        self.find_process(process).await?;
        process::wait(&self.inner, process, timeout).await
    }

    /// A handle to write to and act on any process that runs; `ProcessEnded` where it has ended.
    pub async fn control(&self, process: &ProcessId) -> Result<ProcessControl> {
        self.find_process(process).await?;
        process::control(&self.inner, process).await
    }

    /// Attends to a process that runs and that nobody attends to.
    pub async fn attach(&self, process: &ProcessId) -> Result<Process> {
        self.find_process(process).await?;
        process::attach(&self.inner, process).await
    }

    /// Records of the processes that the query means, newest first.
    pub async fn processes(&self, query: &ProcessQuery) -> Result<Page<ProcessInfo>> {
        let (after, limit) = (query::after(query.after.as_deref())?, query::limit(query.limit)?);
        let sandbox = match &query.sandbox {
            Some(reference) => Some(self.find(reference).await?.id),
            None => None,
        };
        let listing = Listing { scope: &self.scope, query, after, limit };
        let records = self.inner.store.processes(sandbox.as_ref(), &listing).await?;
        let show = |record| process::info(&self.inner, record);
        Ok(query::page(records, limit, show, |last| Place {
            at: last.started_at,
            id: last.id.to_string(),
        }))
    }

    pub async fn process(&self, id: &ProcessId) -> Result<ProcessInfo> {
        Ok(process::info(&self.inner, self.find_process(id).await?))
    }

    /// Reads a process's log from the given offsets on.
    pub async fn log(&self, process: &ProcessId, from: Offsets) -> Result<LogReader> {
        self.find_process(process).await?;
        Ok(LogReader::new(&self.inner.directory.process(process), from))
    }

    /// A whole file of the sandbox; an error if it is larger than `max`.
    pub async fn read_file(&self, id: &SandboxId, path: &Path, max: u64) -> Result<Vec<u8>> {
        self.files(id).await?.read_all(path, max).await
    }

    /// Writes a whole file of the sandbox, with the directories above it.
    pub async fn write_file(&self, id: &SandboxId, path: &Path, content: &[u8]) -> Result<()> {
        self.files(id).await?.write_all(path, content).await
    }

    /// The sandbox's files.
    pub async fn files(&self, id: &SandboxId) -> Result<Files> {
        self.visible(id).await?;
        let live = self.inner.live(id).await?;
        let spool = self.inner.spools.of(&live.tenant);
        let files = Files::new(live.connection(&self.inner).await?, spool);
        Ok(match self.inner.policies.of(&self.inner, id).await? {
            None => files,
            Some(governed) => {
                files.guarded(FileGuard::new(&self.inner.audit, governed, &self.asker))
            }
        })
    }

    /// Files in `/output` that are new or changed since the given time.
    pub async fn artifacts(&self, id: &SandboxId, since: SystemTime) -> Result<Vec<Artifact>> {
        artifacts::artifacts(&self.files(id).await?, since).await
    }

    /// What the sandbox changed in its workspace layer.
    pub async fn diff(&self, reference: &str) -> Result<Vec<LayerChange>> {
        layer::diff(&self.inner, &self.scope, reference).await
    }

    /// Writes the changes of the workspace layer to the host's directory and empties the layer.
    pub async fn apply(&self, reference: &str) -> Result<Vec<LayerChange>> {
        let (inner, scope) = (Arc::clone(&self.inner), self.scope.clone());
        let reference = reference.to_owned();
        to_the_end(async move { layer::apply(&inner, &scope, &reference).await }).await
    }

    /// Empties the workspace layer; returns what was lost by that.
    pub async fn discard(&self, reference: &str) -> Result<Vec<LayerChange>> {
        let (inner, scope) = (Arc::clone(&self.inner), self.scope.clone());
        let reference = reference.to_owned();
        to_the_end(async move { layer::discard(&inner, &scope, &reference).await }).await
    }

    /// What a sandbox runs under; `None` where it has no policy.
    pub async fn policy(&self, id: &SandboxId) -> Result<Option<Arc<SandboxPolicy>>> {
        self.visible(id).await?;
        let governed = self.inner.policies.of(&self.inner, id).await?;
        Ok(governed.map(|governed| Arc::clone(&governed.policy)))
    }

    /// Asks the policy of a sandbox, and puts the answer on record. Without a policy everything is permitted, and there
    /// is no record.
    pub async fn judge(&self, id: &SandboxId, question: Question) -> Result<Judged> {
        self.visible(id).await?;
        let governed = self.inner.policies.of(&self.inner, id).await?;
        match governed {
            None => Ok(Judged::ungoverned()),
            Some(governed) => {
                policy::judge(&self.inner.audit, &governed, &self.asker, question).await
            }
        }
    }

    /// The smallest document that allows what a sandbox did, as far as its policy was asked.
    pub async fn learn(&self, reference: &str) -> Result<Learned> {
        policy::learn(self, &self.find(reference).await?).await
    }

    /// From here on `host` answers the calls of tools from inside sandboxes; the first one that says so does. Sandboxes
    /// that run already learn of it in the background.
    pub fn serve_tools(&self, host: Arc<dyn ToolHost>) {
        if self.inner.tool_host.set(host).is_ok() {
            let inner = Arc::clone(&self.inner);
            self.inner.background.spawn(async move { tools::reach_all(&inner).await });
        }
    }

    /// From here on `decider` is asked where the network of a sandbox is left to a program; the first one is.
    pub fn decide_networks(&self, decider: Arc<dyn Decider>) {
        self.inner.deciding.set(decider);
    }

    /// Policies that are kept by name.
    #[must_use]
    pub fn policies(&self) -> Policies {
        Policies::new(&self.inner, self.scope.clone())
    }

    /// Who shares the state directory.
    #[must_use]
    pub fn tenants(&self) -> Tenants {
        Tenants::new(&self.inner, self.scope.clone())
    }

    /// How much of everything there is now, in scope.
    pub async fn counts(&self) -> Result<Counts> {
        self.inner.store.counts(&self.scope).await
    }

    /// What happens in scope: after the event of that number, or from now on.
    #[must_use]
    pub fn events(&self, since: Option<u64>) -> Events {
        Events::new(&self.inner, self.scope.clone(), since)
    }

    /// The number of the newest event.
    pub async fn last_event(&self) -> Result<u64> {
        self.inner.store.last_event()
    }

    pub async fn templates(&self) -> Result<Vec<TemplateInfo>> {
        Ok(template::list())
    }

    /// Has the backend that is asked for by name fetch the image that the template names. Without an image, or without a
    /// name, there is nothing to fetch.
    pub async fn fetch_template(
        &self,
        request: &CreateRequest,
        steps: &mpsc::Sender<FetchStep>,
    ) -> Result<()> {
        self.scope.may_create()?;
        if let (TemplateSpec::Image(image), BackendChoice::Named(name)) =
            (&request.template, &request.backend)
        {
            self.inner.backends.get(name)?.fetch(image, steps).await?;
        }
        Ok(())
    }

    /// Tries backends, or the one that is named, by running a tiny sandbox on each; what is known already is tried anew
    /// only if asked to.
    pub async fn probe(&self, only: Option<&str>, refresh: bool) -> Vec<Probe> {
        self.inner.backends.probe(only, refresh).await
    }

    /// The audit log of the state directory.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// Looks for what no sandbox owns any more; removes it if asked to.
    pub async fn leaks(&self, fix: bool) -> Result<LeakReport> {
        self.scope.administers()?;
        leaks::leaks(&self.inner, fix).await
    }

    /// The sandbox with that id or name, if it is in scope.
    pub(crate) async fn find(&self, reference: &str) -> Result<SandboxRecord> {
        self.inner.find(&self.scope, reference).await
    }

    /// Refuses an id that is out of scope as if it did not exist.
    pub(crate) async fn visible(&self, id: &SandboxId) -> Result<()> {
        if self.scope == Scope::All {
            return Ok(());
        }
        match self.inner.store.tenant_of(id).await? {
            Some(tenant) if self.scope.sees(&tenant, id) => Ok(()),
            _ => Err(Error::sandbox_not_found(id.as_str())),
        }
    }

    /// The process with that id, if it is in scope.
    pub(crate) async fn find_process(&self, id: &ProcessId) -> Result<ProcessRecord> {
        let record = self.inner.store.process(id).await?;
        record
            .filter(|record| self.scope.sees(&record.tenant, &record.sandbox))
            .ok_or_else(|| Error::process_not_found(id))
    }

    /// Waits until work in the background is done, up to ten seconds, and lets go of the backends' helpers. Sandboxes stay.
    pub async fn close(self) {
        self.inner.stop_caretaker();
        self.inner.background.finish(CLOSING).await;
        self.inner.gates.close_all();
        let live: Vec<_> = self.inner.lock_live().values().cloned().collect();
        for live in live {
            live.withdraw_tools().await;
        }
        for backend in self.inner.backends.iter() {
            backend.close().await;
        }
        self.inner.audit.settle();
        self.inner.audit.flush().await;
        if let Err(error) = self.inner.store.maintain().await {
            tracing::debug!(%error, "the store was not tidied");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_caretaker();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let root = self.inner.directory.root();
        f.debug_struct("Engine").field("state_dir", &root).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn stop_caretaker(&self) {
        if let Some(task) = self.caretaker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The sandbox with that id, or the live one of the scope's tenant with that name.
    pub(crate) async fn find(&self, scope: &Scope, reference: &str) -> Result<SandboxRecord> {
        let in_scope = |record: &SandboxRecord| scope.sees(&record.tenant, &record.id);
        if let Ok(id) = SandboxId::parse(reference)
            && let Some(record) = self.store.sandbox(&id).await?.filter(in_scope)
        {
            return Ok(record);
        }
        let named = self.store.sandbox_named(&scope.tenant(), reference).await?;
        named
            .filter(in_scope)
            .ok_or_else(|| Error::sandbox_not_found(&belljar_policy::shown(reference)))
    }

    /// A sandbox that is ready, for talking to it.
    pub(crate) async fn live(&self, id: &SandboxId) -> Result<Arc<Live>> {
        if let Some(live) = self.known_live(id) {
            // Another program may have paused or ended it.
            return check_usable(id, self.store.state_of(id).await?).map(|()| live);
        }
        let record = self.store.sandbox(id).await?;
        let record = record.ok_or_else(|| Error::sandbox_not_found(id.as_str()))?;
        match record.state {
            State::Ready => {}
            state if has_ended(state) => return Err(Error::sandbox_gone(id.as_str())),
            state => return Err(Error::sandbox_not_ready(id.as_str(), state)),
        }
        let found = Arc::new(Live::found(
            id.clone(),
            record.tenant.clone(),
            self.backends.get(&record.backend)?,
        ));
        // Whoever had its network may be gone.
        self.gates.open(self, &record).await?;
        Ok(Arc::clone(self.lock_live().entry(id.clone()).or_insert(found)))
    }

    /// A sandbox that this engine has talked to, whatever state it is in.
    pub(crate) fn known_live(&self, id: &SandboxId) -> Option<Arc<Live>> {
        self.lock_live().get(id).cloned()
    }

    pub(crate) fn remember(&self, live: Live) {
        self.lock_live().insert(live.id.clone(), Arc::new(live));
    }

    /// Ends the connection to a sandbox that is about to go.
    pub(crate) async fn forget(&self, id: &SandboxId) {
        let live = self.lock_live().remove(id);
        self.policies.forget(id);
        if let Some(live) = live {
            live.close().await;
        }
        self.gates.close(id);
    }

    /// Destroys a sandbox that went by itself, without making the caller wait.
    pub(crate) fn reap_later(self: &Arc<Self>, id: &SandboxId, gone: Gone) {
        let (inner, id) = (Arc::clone(self), id.clone());
        self.background.spawn(async move {
            if let Err(error) = reap(&inner, &id, gone.reason()).await {
                tracing::debug!(%error, sandbox = %id, "left for the next recovery");
            }
        });
    }

    /// Finds out, in the background, whether a sandbox whose connection broke is still there.
    pub(crate) fn check_later(self: &Arc<Self>, id: &SandboxId) {
        let (inner, id) = (Arc::clone(self), id.clone());
        self.background.spawn(async move {
            let Ok(Some(record)) = inner.store.sandbox(&id).await else { return };
            if has_ended(record.state) {
                return inner.forget(&id).await;
            }
            let Ok(backend) = inner.backends.get(&record.backend) else { return };
            if record.state == State::Ready && backend.is_alive(&id).await.is_ok_and(|alive| !alive)
            {
                // The next look finds it where the store does not answer now.
                let Ok(gone) = Gone::found(&inner, &record).await else { return };
                inner.reap_later(&id, gone);
            }
        });
    }

    /// Counts the end of a sandbox or process; now and then the store is tidied after one.
    pub(crate) fn count_end(self: &Arc<Self>) {
        if self.ends.fetch_add(1, Ordering::Relaxed) % MAINTAIN_EVERY == MAINTAIN_EVERY - 1
            // However slow the disk is, one at a time.
            && !self.tidying.swap(true, Ordering::Relaxed)
        {
            let inner = Arc::clone(self);
            self.background.spawn(async move {
                // A little now and then, or folding would have much to do at once.
                inner.store.write_log().await;
                if let Err(error) = inner.store.maintain().await {
                    tracing::debug!(%error, "the store was not tidied");
                }
                inner.tidying.store(false, Ordering::Relaxed);
            });
        }
    }

    fn lock_live(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
