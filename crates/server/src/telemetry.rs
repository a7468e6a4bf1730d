//! Spans of requests, sent to a collector where one is named. Off, it is not there at all.

use std::time::Duration;

use belljar_codes::Code;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::problem::{Problem, Result};

/// What the collector has not taken by then is lost.
const FLUSH: Duration = Duration::from_secs(3);

/// The way to a collector.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Opens the way to an OTLP collector over gRPC, such as `http://127.0.0.1:4317`. Nothing is sent yet: a collector
    /// that does not answer holds up nothing but its own spans. Over `https`, the collector's certificate is checked
    /// against `authority` (PEM) where one is given, else against what this machine trusts.
    ///
    /// # Errors
    /// `invalid-configuration` where it is no address.
    pub fn to(endpoint: &str, authority: Option<&[u8]>) -> Result<Self> {
        let refused = |error: &dyn std::error::Error| {
            let shown = belljar_policy::shown(endpoint);
            Problem::new(Code::InvalidConfiguration, format!("`{shown}` is no OTLP endpoint"))
                .caused_by(error)
                .with_remedy("give a URL such as `http://127.0.0.1:4317` or `https://collector.example:4317`")
        };
        let address: http::Uri = endpoint.parse().map_err(|error| refused(&error))?;
        let plain = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        let exporter = match address.scheme_str() {
            Some("http") => plain,
            Some("https") => {
                let trusted = ClientTlsConfig::new();
                plain.with_tls_config(match authority {
                    Some(pem) => trusted.ca_certificate(Certificate::from_pem(pem)),
                    None => trusted.with_native_roots(),
                })
            }
            _ => {
                let spoken = "only `http://` and `https://` are spoken to a collector";
                return Err(refused(&Problem::invalid(spoken)));
            }
        };
        let exporter = exporter.build().map_err(|error| refused(&error))?;
        let resource = Resource::builder().with_service_name("belljar").build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        Ok(Self { provider })
    }

    /// What to add to a subscriber so that requests are sent.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let tracer = self.provider.tracer("belljar");
        // Only what is ours: the exporter's own requests would be told of in requests.
        let ours = Targets::new().with_target("belljar_server", LevelFilter::INFO);
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours)
    }

    /// Sends what is left.
    pub async fn close(self) {
        let closed =
            tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(FLUSH));
        if let Ok(Err(error)) = closed.await {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}
