//! The server itself.

use belljar_api::v1;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert;
use crate::problem::Result;

struct Counts {
    sandboxes: u64,
    paused: u64,
    processes: u64,
}

impl Api {
    pub async fn get_server(
        &self,
        call: &Call,
        _request: v1::GetServerRequest,
    ) -> Result<v1::Server> {
        let work = async {
            let counts = self.counts().await?;
            let status = &self.status;
            // Where the server's state lies is the operator's to know.
            let state_dir = if call.caller.is_admin() {
                self.engine.state_dir().to_string_lossy().into_owned()
            } else {
                String::new()
            };
            Ok(v1::Server {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                addresses: status.addresses.clone(),
                state_dir,
                started_at: Some(convert::timestamp(status.started_at)),
                counts: Some(v1::Counts {
                    sandboxes: counts.sandboxes,
                    paused: counts.paused,
                    processes: counts.processes,
                    connections: status.connections(),
                }),
                automatic: status.automatic,
                tls: status.tls,
            })
        };
        self.act(call, action::GET_SERVER, "", work).await
    }

    async fn counts(&self) -> Result<Counts> {
        let page = self.engine.list(&Default::default()).await?;
        Ok(Counts { sandboxes: page.items.len() as u64, paused: 0, processes: 0 })
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
            let probes = self.engine.probe().await.into_iter();
            let wanted = |name: &str| request.backend.as_deref().is_none_or(|only| only == name);
            let probes = probes.filter(|probe| wanted(&probe.backend)).map(|probe| v1::Probe {
                works: probe.works,
                class: probe.class.as_str().to_owned(),
                detail: probe.reason,
                start_ms: probe.start_ms,
                enforcement: probe.enforcement.iter().map(convert::enforcement).collect(),
                remedy: probe.remedy,
                backend: probe.backend,
            });
            Ok(v1::ProbeBackendsResponse { probes: probes.collect() })
        };
        self.act(call, action::PROBE, "", work).await
    }
}
