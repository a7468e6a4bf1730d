//! Creating, finding, keeping and ending sandboxes.

use std::path::Path;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{Engine, EventKind, Events, Sandbox, SandboxId, SandboxQuery, SessionRequest};
use futures_util::stream;

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert;
use crate::measure::{self, Stage};
use crate::problem::{Problem, Result};

impl Api {
    pub async fn create_sandbox(
        &self,
        call: &Call,
        request: v1::CreateSandboxRequest,
    ) -> Result<v1::Sandbox> {
        let target = request.name.clone().unwrap_or_default();
        let work = async {
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            call.belongs_to(&scope.tenant());
            let engine = self.engine_in(call, scope);
            let mut create = convert::create_request(&call.caller, &request).await?;
            create.idempotency_key.clone_from(&request.idempotency_key);
            let files = files("files", &request.files)?;
            let (sandbox, created) = if request.get_or_create {
                if create.name.is_none() {
                    return Err(Problem::new(
                        Code::ConflictingOptions,
                        "`get_or_create` needs a name",
                    )
                    .with_remedy("give `name`, or leave out `get_or_create`"));
                }
                let session = engine.session(SessionRequest::Named(create));
                let session = Stage::Create.time(session).await?;
                (session.sandbox.clone(), session.created)
            } else {
                (Stage::Create.time(engine.create(create)).await?, true)
            };
            call.concerns(&sandbox.id, &sandbox.tenant);
            if created {
                measure::created();
                let written = write_files(&engine, &sandbox.id, &files).await;
                // With a key it may be an earlier one, which whoever asks again finds; without, nobody would know of it.
                if request.idempotency_key.is_none() {
                    or_nothing(&engine, &sandbox.id, written).await?;
                } else {
                    written?;
                }
            }
            Ok(convert::sandbox(&sandbox))
        };
        self.act(call, action::CREATE_SANDBOX, &target, work).await
    }

    pub async fn get_sandbox(
        &self,
        call: &Call,
        request: v1::GetSandboxRequest,
    ) -> Result<v1::Sandbox> {
        let work =
            async { Ok(convert::sandbox(&self.engine(call).inspect(&request.sandbox).await?)) };
        self.act(call, action::GET_SANDBOX, &request.sandbox, work).await
    }

    pub async fn list_sandboxes(
        &self,
        call: &Call,
        request: v1::ListSandboxesRequest,
    ) -> Result<v1::ListSandboxesResponse> {
        let work = async {
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            let states = request.states.iter().filter_map(|state| convert::state_of(*state));
            let query = SandboxQuery {
                labels: request.labels.clone(),
                metadata: request.metadata.clone(),
                states: states.collect(),
                name_prefix: request.name_prefix.clone(),
                after: request.page_token.clone(),
                limit: request.page_size,
            };
            let page = self.engine.scoped(scope).list(&query).await?;
            Ok(v1::ListSandboxesResponse {
                sandboxes: page.items.iter().map(convert::sandbox).collect(),
                next_page_token: page.next,
            })
        };
        self.act(call, action::LIST_SANDBOXES, "", work).await
    }

    pub async fn destroy_sandbox(
        &self,
        call: &Call,
        request: v1::DestroySandboxRequest,
    ) -> Result<v1::DestroySandboxResponse> {
        let work = async {
            let id = self.subject(call, &request.sandbox).await?;
            Stage::Destroy.time(self.engine(call).destroy(id.as_str())).await?;
            Ok(v1::DestroySandboxResponse { sandbox_id: id.as_str().to_owned() })
        };
        self.act(call, action::DESTROY_SANDBOX, &request.sandbox, work).await
    }

    pub async fn extend_sandbox(
        &self,
        call: &Call,
        request: v1::ExtendSandboxRequest,
    ) -> Result<v1::Sandbox> {
        let work = async {
            let lease = convert::lease(request.idle_timeout_secs, request.lease_secs)?;
            let sandbox = self.engine(call).extend(&request.sandbox, lease).await?;
            call.concerns(&sandbox.id, &sandbox.tenant);
            Ok(convert::sandbox(&sandbox))
        };
        self.act(call, action::EXTEND_SANDBOX, &request.sandbox, work).await
    }

    pub async fn pause_sandbox(
        &self,
        call: &Call,
        request: v1::PauseSandboxRequest,
    ) -> Result<v1::Sandbox> {
        let work = async {
            let sandbox = self.engine(call).pause(&request.sandbox).await?;
            call.concerns(&sandbox.id, &sandbox.tenant);
            Ok(convert::sandbox(&sandbox))
        };
        self.act(call, action::PAUSE_SANDBOX, &request.sandbox, work).await
    }

    pub async fn resume_sandbox(
        &self,
        call: &Call,
        request: v1::ResumeSandboxRequest,
    ) -> Result<v1::Sandbox> {
        let work = async {
            let sandbox = self.engine(call).resume(&request.sandbox).await?;
            call.concerns(&sandbox.id, &sandbox.tenant);
            Ok(convert::sandbox(&sandbox))
        };
        self.act(call, action::RESUME_SANDBOX, &request.sandbox, work).await
    }

    pub async fn explain_sandbox(
        &self,
        call: &Call,
        request: v1::ExplainSandboxRequest,
    ) -> Result<v1::Explanation> {
        let target = request.sandbox.clone().unwrap_or_default();
        let work = async {
            let engine = self.engine(call);
            if let Some(sandbox) = &request.sandbox {
                return Ok(explained(&engine.inspect(sandbox).await?));
            }
            let create = request.create.unwrap_or_default();
            let create = convert::explain_request(&call.caller, &create).await?;
            Ok(convert::explanation(engine.explain(&create).await?))
        };
        self.act(call, action::EXPLAIN_SANDBOX, &target, work).await
    }

    pub async fn watch_events(
        &self,
        call: &Call,
        request: v1::WatchEventsRequest,
    ) -> Result<Answers<v1::Event>> {
        let target = request.sandbox.clone().unwrap_or_default();
        let work = async {
            let engine = self.engine(call);
            let only = match &request.sandbox {
                Some(sandbox) => Some(engine.identify(sandbox).await?),
                None => None,
            };
            let kinds: Vec<_> =
                request.kinds.iter().filter_map(|kind| convert::kind_of(*kind)).collect();
            // What has happened begins at the beginning; what will happen begins now.
            let since = if request.once { request.since.or(Some(0)) } else { request.since };
            let once = request.once;
            let wanted = Wanted { events: engine.events(since), only, kinds, once };
            Ok(self.until_stopped(stream::try_unfold(wanted, async |mut wanted| {
                Ok(wanted.next().await?.map(|event| (event, wanted)))
            })))
        };
        self.act(call, action::WATCH_EVENTS, &target, work).await
    }

    pub async fn diff_layer(
        &self,
        call: &Call,
        request: v1::DiffLayerRequest,
    ) -> Result<v1::DiffLayerResponse> {
        let work = async {
            let changes = self.engine(call).diff(&request.sandbox).await?;
            Ok(v1::DiffLayerResponse {
                changes: changes.iter().map(convert::layer_change).collect(),
            })
        };
        self.act(call, action::DIFF_LAYER, &request.sandbox, work).await
    }

    pub async fn apply_layer(
        &self,
        call: &Call,
        request: v1::ApplyLayerRequest,
    ) -> Result<v1::ApplyLayerResponse> {
        let work = async {
            self.subject(call, &request.sandbox).await?;
            let changes = self.engine(call).apply(&request.sandbox).await?;
            Ok(v1::ApplyLayerResponse {
                changes: changes.iter().map(convert::layer_change).collect(),
            })
        };
        self.act(call, action::APPLY_LAYER, &request.sandbox, work).await
    }

    pub async fn discard_layer(
        &self,
        call: &Call,
        request: v1::DiscardLayerRequest,
    ) -> Result<v1::DiscardLayerResponse> {
        let work = async {
            self.subject(call, &request.sandbox).await?;
            let changes = self.engine(call).discard(&request.sandbox).await?;
            Ok(v1::DiscardLayerResponse {
                changes: changes.iter().map(convert::layer_change).collect(),
            })
        };
        self.act(call, action::DISCARD_LAYER, &request.sandbox, work).await
    }
}

/// The events that a caller asked for.
struct Wanted {
    events: Events,
    only: Option<SandboxId>,
    kinds: Vec<EventKind>,
    /// Ends with what has happened by now.
    once: bool,
}

impl Wanted {
    async fn next(&mut self) -> Result<Option<v1::Event>> {
        loop {
            let event = match self.once {
                true => self.events.next_now().await?,
                false => Some(self.events.next().await?),
            };
            let Some(event) = event else { return Ok(None) };
            let meant = self.only.as_ref().is_none_or(|id| *id == event.sandbox)
                && (self.kinds.is_empty() || self.kinds.contains(&event.kind));
            if meant {
                return Ok(Some(convert::event(&event)));
            }
        }
    }
}

/// Files that come or go with one request, each by a call of its own; more are an archive.
pub(super) const MAX_FILES: usize = 1000;

/// The files that come with a request, in this field of it.
pub(super) fn files<'a>(
    field: &str,
    files: &'a [v1::FileContent],
) -> Result<Vec<(&'a Path, &'a [u8])>> {
    if files.len() > MAX_FILES {
        return Err(too_many_files(field, files.len()));
    }
    let name = format!("{field}.path");
    files.iter().map(|file| Ok((convert::path(&name, &file.path)?, &file.content[..]))).collect()
}

pub(super) fn too_many_files(field: &str, count: usize) -> Problem {
    Problem::invalid(format!("`{field}` names {count} files, more than {MAX_FILES}"))
        .with_remedy("send or fetch them as an archive")
}

pub(super) async fn write_files(
    engine: &Engine,
    id: &SandboxId,
    files: &[(&Path, &[u8])],
) -> Result<()> {
    for (path, content) in files {
        engine.write_file(id, path, content).await?;
    }
    Ok(())
}

/// A sandbox that is not as its caller wants it is not left behind.
pub(super) async fn or_nothing(engine: &Engine, id: &SandboxId, made: Result<()>) -> Result<()> {
    if made.is_err()
        && let Err(error) = engine.destroy(id.as_str()).await
    {
        tracing::warn!(%id, %error, "a sandbox without its files stays until its time is over");
    }
    made
}

/// A sandbox that exists explains itself: what holds was settled when it was created.
fn explained(sandbox: &Sandbox) -> v1::Explanation {
    let isolation = &sandbox.isolation;
    v1::Explanation {
        requested_backend: isolation.backend.clone(),
        chosen_backend: isolation.backend.clone(),
        reason: match isolation.reason.as_str() {
            "" => "the sandbox exists and runs there".to_owned(),
            reason => format!("the sandbox exists and runs there; when it was created: {reason}"),
        },
        runtime: isolation.runtime.as_ref().map(|runtime| runtime.name.clone()),
        platform: isolation.runtime.as_ref().and_then(|runtime| runtime.platform.clone()),
        class: isolation.class.as_str().to_owned(),
        template: sandbox.template.clone(),
        template_reason: "the sandbox was created from it".to_owned(),
        network_mode: isolation.network_mode.clone(),
        network_enforcement: isolation.network_enforcement.clone(),
        writable_paths: isolation.writable_paths.clone(),
        timeout_secs: isolation.timeout_secs,
        stripped_environment: Vec::new(),
        rules: sandbox.enforcement.iter().map(convert::enforcement).collect(),
    }
}
