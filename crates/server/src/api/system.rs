//! The server itself.

use belljar_api::v1;
use belljar_backend::Orphan;
use belljar_engine::SandboxState;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert;
use crate::problem::Result;

impl Api {
    pub async fn get_server(
        &self,
        call: &Call,
        _request: v1::GetServerRequest,
    ) -> Result<v1::Server> {
        let work = async {
            let counts = self.engine(call).counts().await?;
            let live = |state| counts.sandboxes.get(&state).copied().unwrap_or(0);
            let status = &self.status;
            let mut addresses = status.addresses.clone();
            let (state_dir, connections) = if call.caller.is_admin() {
                (self.engine.state_dir().to_string_lossy().into_owned(), status.connections())
            } else {
                // Where the server's state lies, and how many others talk to it, is the operator's to know.
                addresses.retain(|address| !address.starts_with("unix:"));
                (String::new(), 0)
            };
            Ok(v1::Server {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                addresses,
                state_dir,
                started_at: Some(convert::timestamp(status.started_at)),
                counts: Some(v1::Counts {
                    sandboxes: counts.sandboxes.values().sum(),
                    paused: live(SandboxState::Paused),
                    processes: counts.processes,
                    connections,
                }),
                automatic: status.automatic,
                tls: status.tls,
            })
        };
        self.act(call, action::GET_SERVER, "", work).await
    }

    pub async fn stop_server(
        &self,
        call: &Call,
        _request: v1::StopServerRequest,
    ) -> Result<v1::StopServerResponse> {
        let work = async {
            self.status.stop();
            Ok(v1::StopServerResponse {})
        };
        self.act(call, action::STOP_SERVER, "", work).await
    }

    pub async fn get_caller(
        &self,
        call: &Call,
        _request: v1::GetCallerRequest,
    ) -> Result<v1::Caller> {
        Ok(call.caller.wire())
    }

    pub async fn probe_backends(
        &self,
        call: &Call,
        request: v1::ProbeBackendsRequest,
    ) -> Result<v1::ProbeBackendsResponse> {
        let work = async {
            let only = request.backend.as_deref();
            let probes = self.engine.probe(only, request.refresh).await.into_iter();
            let probes = probes.map(|probe| v1::Probe {
                works: probe.works,
                class: probe.class.as_str().to_owned(),
                detail: probe.reason,
                start_ms: probe.start_ms,
                enforcement: probe.enforcement.iter().map(convert::enforcement).collect(),
                remedy: probe.remedy,
                backend: probe.backend,
                runtime: probe.runtime,
                platform: probe.platform,
                fast: probe.fast,
            });
            Ok(v1::ProbeBackendsResponse { probes: probes.collect() })
        };
        self.act(call, action::PROBE, "", work).await
    }

    pub async fn find_leaks(
        &self,
        call: &Call,
        request: v1::FindLeaksRequest,
    ) -> Result<v1::FindLeaksResponse> {
        let work = async {
            let report = self.engine.leaks(request.fix).await?;
            Ok(v1::FindLeaksResponse {
                leaks: report
                    .found
                    .iter()
                    .map(|orphan| format!("{} {}", orphan.kind, orphan.name))
                    .collect(),
                fixed: report.removed.len() == report.found.len(),
                found: report.found.iter().map(leak).collect(),
                removed: report.removed.iter().map(leak).collect(),
            })
        };
        self.act(call, action::FIND_LEAKS, "", work).await
    }
}

fn leak(orphan: &Orphan) -> v1::Leak {
    v1::Leak {
        kind: orphan.kind.clone(),
        name: orphan.name.clone(),
        sandbox_id: orphan.sandbox.as_ref().map(|id| id.as_str().to_owned()),
    }
}
