//! A server in this process on the native backend, sandboxes under policies, and clients that answer for them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use belljar_api::v1;
use belljar_api::v1::callbacks_client::CallbacksClient;
use belljar_api::v1::system_client::SystemClient;
use belljar_engine::{
    AuditEntry, AuditQuery, CreateRequest, Engine, EngineOptions, ExecRequest, PolicyChoice,
    Program, SandboxId, SandboxPolicy,
};
use belljar_native::{Native, Options as NativeOptions};
use belljar_policy::document::{Document, Format, Layer};
use belljar_server::{Claim, Options, serve};
use belljar_testkit::{Installation, Mode, Turn};
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Runs `test` with a server, ends it and looks for anything left behind.
pub(crate) fn with_host<F: Future<Output = Host>>(test: impl FnOnce(Host) -> F) {
    let _turn = Turn::shared();
    let root = rustix::process::geteuid().is_root();
    let installation = Installation::new(if root { Mode::Root } else { Mode::Rootless });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let host = Host::start(&installation.state()).await;
        let work = async { test(host).await.end().await };
        tokio::time::timeout(std::time::Duration::from_secs(100), work).await.expect("in time");
    });
    drop(runtime);
    installation.assert_nothing_left();
}

pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    state: std::path::PathBuf,
    task: JoinHandle<belljar_server::Result<()>>,
}

/// What a command gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Host {
    pub(crate) async fn start(state: &Path) -> Self {
        let claim = Claim::take(state).unwrap();
        let native = Native::new(NativeOptions {
            state_dir: state.to_owned(),
            launcher: belljar_testkit::build::belljar().to_owned(),
        });
        let mut options = EngineOptions::new(state, vec![Arc::new(native)]);
        options.attend = true;
        let engine = Engine::open(options).await.unwrap();
        let options =
            Options { listen: vec!["127.0.0.1:0".parse().unwrap()], ..Options::default() };
        let (told, ready) = oneshot::channel();
        let task = tokio::spawn(serve(claim, engine.clone(), options, move |status| {
            told.send(status.addresses.clone()).unwrap();
        }));
        let addresses = ready.await.unwrap();
        let address = addresses.iter().find_map(|address| address.strip_prefix("http://"));
        let address = address.unwrap().parse().unwrap();
        Self { engine, address, state: state.to_owned(), task }
    }

    /// Ends the server; its sandboxes go on.
    pub(crate) async fn stop(self) -> std::path::PathBuf {
        let mut system = SystemClient::new(self.channel());
        system.stop_server(v1::StopServerRequest {}).await.unwrap();
        self.task.await.unwrap().unwrap();
        self.state
    }

    async fn end(self) {
        let all = self.engine.list(&belljar_engine::SandboxQuery::default()).await.unwrap();
        for sandbox in all.items {
            self.engine.destroy(sandbox.id.as_str()).await.unwrap();
        }
        self.stop().await;
    }

    pub(crate) async fn create(&self, policy: &str) -> SandboxId {
        let document = Document::parse(policy, Format::Yaml).unwrap();
        let layer = Layer { origin: "test".to_owned(), document };
        let policy = SandboxPolicy::new(vec![layer]).unwrap();
        let policy = Some(PolicyChoice::Documents(Arc::new(policy)));
        self.engine.create(CreateRequest { policy, ..CreateRequest::default() }).await.unwrap().id
    }

    pub(crate) async fn shell(&self, id: &SandboxId, line: &str) -> Ran {
        ran(&self.engine, id, Program::Shell(line.into())).await
    }

    /// The result of a call, or the code of the failure.
    pub(crate) async fn call(
        &self,
        id: &SandboxId,
        name: &str,
        json: &str,
    ) -> Result<String, String> {
        let argv = ["belljar-tool", "call", name, json].map(Into::into).to_vec();
        let ran = ran(&self.engine, id, Program::Argv(argv)).await;
        match ran.code {
            0 => Ok(ran.out.trim_end().to_owned()),
            1 => Err(code_of(&ran.err)),
            _ => panic!("{ran:?}"),
        }
    }

    pub(crate) async fn python(&self, id: &SandboxId, code: &str) -> Ran {
        let argv = ["python3", "-c", code].map(Into::into).to_vec();
        ran(&self.engine, id, Program::Argv(argv)).await
    }

    pub(crate) async fn audit(&self, action: &str) -> Vec<AuditEntry> {
        let mut reader = self.engine.audit().query(AuditQuery::default()).await;
        let mut found = Vec::new();
        while let Some(record) = reader.next().await.unwrap() {
            if record.entry.action == action {
                found.push(record.entry);
            }
        }
        found
    }

    pub(crate) fn channel(&self) -> Channel {
        let socket = belljar_server::socket_path(&self.state);
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://socket.invalid").connect_with_connector_lazy(connect)
    }

    /// A client that answers calls of tools with what `answer` makes of name and arguments; `None`: never.
    pub(crate) async fn client(
        &self,
        id: &SandboxId,
        tools: &[&str],
        answer: impl Fn(&str, serde_json::Value) -> Option<Result<serde_json::Value, String>>
        + Send
        + 'static,
    ) -> Client {
        let (to_server, messages) = mpsc::channel(16);
        let (told, heard) = mpsc::channel(1024);
        let tools = tools.iter().map(|name| v1::ToolDeclaration {
            name: (*name).to_owned(),
            description: format!("does {name}"),
            ..Default::default()
        });
        let hello = v1::CallbackHello {
            sandbox_id: id.to_string(),
            tools: tools.collect(),
            ..Default::default()
        };
        let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
        to_server.send(hello).await.unwrap();
        let mut client = CallbacksClient::new(self.channel());
        let mut calls = client.serve(ReceiverStream::new(messages)).await.unwrap().into_inner();
        let first = calls.message().await.unwrap().unwrap();
        assert!(first.ready.is_some(), "{first:?}");
        let task = tokio::spawn(async move {
            while let Ok(Some(message)) = calls.message().await {
                let Some(call) = message.call else { continue };
                let asked = call.tool.unwrap();
                told.send(asked.clone()).await.unwrap();
                let arguments = serde_json::from_str(&asked.arguments).unwrap();
                let Some(result) = answer(&asked.name, arguments) else { continue };
                let (tool_result, tool_error) = match result {
                    Ok(value) => (Some(v1::ToolResult { json: value.to_string() }), None),
                    Err(message) => (None, Some(v1::ToolError { message })),
                };
                let answer = v1::CallbackAnswer {
                    call_id: call.call_id,
                    tool_result,
                    tool_error,
                    ..Default::default()
                };
                let answer = v1::ClientCallback { answer: Some(answer), ..Default::default() };
                to_server.send(answer).await.unwrap();
            }
        });
        Client { task, heard }
    }
}

/// Gone when dropped.
pub(crate) struct Client {
    task: JoinHandle<()>,
    /// Calls that came.
    pub(crate) heard: mpsc::Receiver<v1::ToolCall>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ran(engine: &Engine, id: &SandboxId, program: Program) -> Ran {
    let process = engine.exec(id, ExecRequest::new(program)).await.unwrap();
    let ended = process.wait().await.unwrap();
    Ran {
        code: ended.exit.code(),
        out: String::from_utf8_lossy(&ended.stdout.data).into_owned(),
        err: String::from_utf8_lossy(&ended.stderr.data).into_owned(),
    }
}

/// What stands in parentheses at the end.
pub(crate) fn code_of(text: &str) -> String {
    let text = text.trim_end();
    let begin = text.rfind('(').unwrap_or_else(|| panic!("no code in {text:?}"));
    text[begin + 1..].trim_end_matches(')').to_owned()
}
