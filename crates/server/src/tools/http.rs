//! A tool that is an address: the arguments are posted, the answer is the result. Nothing is followed.

use std::sync::OnceLock;

use belljar_codes::Code;
use belljar_engine::{MAX_TOOL_RESULT, ToolCall, ToolFailure};
use belljar_policy::document::Tool;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::{Result, object_text, result_of, too_slow};

type Post = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Posts to addresses. The host's certificates are read with the first one.
#[derive(Default)]
pub(super) struct Poster(OnceLock<std::result::Result<Post, String>>);

impl Poster {
    pub(super) async fn post(&self, tool: &Tool, url: &str, call: &ToolCall) -> Result<String> {
        let posted = tokio::time::timeout(tool.timeout(), self.exchange(tool, url, call));
        let Ok(answer) = posted.await else { return Err(too_slow(&tool.name, tool.timeout())) };
        let answer = answer.map_err(|error| {
            // Where it is and why it does not answer is the host's business.
            tracing::warn!(error, tool = tool.name, "a tool could not be reached");
            ToolFailure::new(Code::ToolFailed, format!("tool `{}` could not be reached", tool.name))
        })?;
        match answer {
            Ok(body) => result_of(&tool.name, body),
            Err(status) => {
                let message = format!("tool `{}` answered with status {status}", tool.name);
                Err(ToolFailure::new(Code::ToolFailed, message))
            }
        }
    }

    /// The body of a good answer, or the status of another one.
    async fn exchange(
        &self,
        tool: &Tool,
        url: &str,
        call: &ToolCall,
    ) -> std::result::Result<std::result::Result<Vec<u8>, u16>, String> {
        let text = |error: &dyn std::error::Error| {
            let mut words = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                words = format!("{words}: {error}");
                cause = error.source();
            }
            words
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("belljar/", env!("CARGO_PKG_VERSION")))
            .header("belljar-tool", &tool.name)
            .header("belljar-sandbox", call.sandbox.as_str())
            .header("belljar-tenant", call.tenant.as_str())
            .body(Full::new(Bytes::from(object_text(&call.arguments).to_owned())))
            .map_err(|error| text(&error))?;
        let client = self.0.get_or_init(client).as_ref().map_err(Clone::clone)?;
        let answer = client.request(request).await.map_err(|error| text(&error))?;
        if !answer.status().is_success() {
            return Ok(Err(answer.status().as_u16()));
        }
        // One byte more than may be, so that too much is seen as that.
        let body = Limited::new(answer.into_body(), MAX_TOOL_RESULT + 1).collect().await;
        match body {
            Ok(body) => Ok(Ok(body.to_bytes().to_vec())),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Ok(Ok(vec![b' '; MAX_TOOL_RESULT + 1]))
            }
            Err(error) => Err(text(&*error)),
        }
    }
}

fn client() -> std::result::Result<Post, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_native_roots()
        .map_err(|error| format!("this host's certificates: {error}"))?
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
