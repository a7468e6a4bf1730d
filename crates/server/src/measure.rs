//! What is counted and measured, for Prometheus. `docs/reference/metrics.md` explains each name.
//!
//! Labels have few values: actions, outcomes, stages. No sandbox, tenant or key is ever a label.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use belljar_codes::Code;
use belljar_engine::SandboxState;
use http::header;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::action::Action;
use crate::api::Api;
use crate::call::Call;
use crate::caller::Permission;
use crate::problem::{Problem, Result};

const REQUESTS: &str = "belljar_requests_total";
const REQUEST_SECONDS: &str = "belljar_request_seconds";
const ERRORS: &str = "belljar_errors_total";
const CREATED: &str = "belljar_sandboxes_created_total";
const STAGE_SECONDS: &str = "belljar_stage_seconds";
const SANDBOXES: &str = "belljar_sandboxes";
const PROCESSES: &str = "belljar_processes";
const CONNECTIONS: &str = "belljar_connections";
const UNDER_WAY: &str = "belljar_requests_under_way";
const NETWORK: &str = "belljar_network_decisions_total";
const POOL: &str = "belljar_pool_total";
const DELIVERIES: &str = "belljar_webhook_deliveries_total";
const UP: &str = "belljar_start_time_seconds";

/// From a tenth of what an exec takes to a command that runs for a minute.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0];

const LIVE: [SandboxState; 4] =
    [SandboxState::Creating, SandboxState::Ready, SandboxState::Paused, SandboxState::Destroying];

/// Measurements wait in memory until they are sorted into buckets.
const UPKEEP: Duration = Duration::from_secs(5);

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Parts of what a request does whose time is worth knowing by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Until the sandbox is ready.
    Create,
    /// Until the command runs.
    Start,
    /// Until nothing of the sandbox is left.
    Destroy,
}

impl Stage {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Destroy => "destroy",
        }
    }

    /// Measures something that may fail; only what worked counts.
    pub(crate) fn time<T: Send, E: Send>(
        self,
        work: impl Future<Output = std::result::Result<T, E>> + Send,
    ) -> impl Future<Output = std::result::Result<T, E>> + Send {
        let work = Box::pin(work); // see `Api::act`
        async move {
            let begun = Instant::now();
            let result = work.await;
            if result.is_ok() {
                metrics::histogram!(STAGE_SECONDS, "stage" => self.as_str())
                    .record(begun.elapsed());
            }
            result
        }
    }
}

/// Begins to count. Before that, and in a process that does not serve, nothing is kept and nothing costs.
pub(crate) fn begin() {
    HANDLE.get_or_init(|| {
        let matcher = Matcher::Suffix("_seconds".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(matcher, &BUCKETS)
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder is in place: metrics stay empty");
        }
        describe();
        handle
    });
}

/// Keeps memory bounded where nobody asks for the metrics.
pub(crate) async fn upkeep() {
    loop {
        tokio::time::sleep(UPKEEP).await;
        if let Some(handle) = HANDLE.get() {
            handle.run_upkeep();
        }
    }
}

/// One request and how it ended.
pub(crate) fn request(action: Action, problem: Option<&Problem>, took: Duration) {
    let outcome = problem.map_or("ok", |problem| problem.code.as_str());
    metrics::counter!(REQUESTS, "action" => action.name, "outcome" => outcome).increment(1);
    metrics::histogram!(REQUEST_SECONDS, "action" => action.name).record(took);
    if let Some(problem) = problem {
        error(problem);
    }
}

/// A request that ended before it was known what it wanted.
pub(crate) fn error(problem: &Problem) {
    metrics::counter!(ERRORS, "code" => problem.code.as_str()).increment(1);
}

/// An attempt to tell a webhook of an event.
pub(crate) fn delivery(worked: bool) {
    let outcome = if worked { "ok" } else { "failed" };
    metrics::counter!(DELIVERIES, "outcome" => outcome).increment(1);
}

pub(crate) fn created() {
    metrics::counter!(CREATED).increment(1);
}

pub(crate) fn router(api: &Api) -> Router {
    Router::new().route("/metrics", get(page)).with_state(api.clone())
}

async fn page(State(api): State<Api>, Extension(call): Extension<Call>) -> Response {
    // Numbers of all tenants together are nobody's but the operator's.
    let allowed = call.caller.check(Permission::Read).and_then(|()| {
        let denied = || Problem::new(Code::PermissionDenied, "metrics need the role `admin`");
        call.caller.is_admin().then_some(()).ok_or_else(denied)
    });
    let text = match allowed {
        Ok(()) => render(&api).await,
        Err(problem) => Err(problem),
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// Everything, in the text form of Prometheus.
pub(crate) async fn render(api: &Api) -> Result<String> {
    let Some(handle) = HANDLE.get() else { return Ok(String::new()) };
    let counts = api.unscoped().counts().await?;
    for state in LIVE {
        let number = counts.sandboxes.get(&state).copied().unwrap_or(0);
        metrics::gauge!(SANDBOXES, "state" => state.as_str()).set(number as f64);
    }
    for (decision, number) in api.unscoped().network_decisions() {
        metrics::counter!(NETWORK, "decision" => decision).absolute(number);
    }
    for (result, number) in api.unscoped().reserve_use() {
        metrics::counter!(POOL, "result" => result).absolute(number);
    }
    let status = api.status();
    metrics::gauge!(PROCESSES).set(counts.processes as f64);
    metrics::gauge!(CONNECTIONS).set(status.connections() as f64);
    metrics::gauge!(UNDER_WAY).set(status.requests() as f64);
    let started = status.started_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!(UP).set(started.as_secs_f64());
    Ok(handle.render())
}

fn describe() {
    metrics::describe_counter!(REQUESTS, "requests by action and outcome");
    metrics::describe_histogram!(
        REQUEST_SECONDS,
        "time until a request was answered, or its stream began"
    );
    metrics::describe_counter!(ERRORS, "failed requests by code");
    metrics::describe_counter!(CREATED, "sandboxes made for requests");
    metrics::describe_histogram!(STAGE_SECONDS, "time of parts of requests");
    metrics::describe_gauge!(SANDBOXES, "sandboxes that have not ended, by state");
    metrics::describe_gauge!(PROCESSES, "processes that have not ended");
    metrics::describe_gauge!(CONNECTIONS, "open connections");
    metrics::describe_gauge!(UNDER_WAY, "requests under way, streams included");
    metrics::describe_counter!(DELIVERIES, "attempts to tell a webhook of an event");
    metrics::describe_counter!(
        NETWORK,
        "decisions about connections, names and requests of sandboxes"
    );
    metrics::describe_counter!(POOL, "sandboxes made of parts that were ready, and others");
    metrics::describe_gauge!(UP, "when the server began, in seconds since 1970");
}
