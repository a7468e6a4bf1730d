//! Calls of tools, as whoever answers them sees them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use belljar_engine::{
    CreateRequest, Engine, PolicyChoice, SandboxId, SandboxPolicy, ToolCall, ToolFailure, ToolHost,
};
use belljar_policy::document::{Document, Format, Layer};
use support::{Setup, exec};
use tokio::sync::mpsc;

/// Passes on what it is asked.
struct Listener(mpsc::UnboundedSender<ToolCall>);

#[async_trait::async_trait]
impl ToolHost for Listener {
    async fn call(&self, _engine: &Engine, call: ToolCall) -> Result<String, ToolFailure> {
        self.0.send(call).unwrap();
        Ok("1".to_owned())
    }

    async fn list(&self, _engine: &Engine, _sandbox: &SandboxId) -> Result<String, ToolFailure> {
        Ok("[]".to_owned())
    }
}

fn with_tools() -> CreateRequest {
    let text = "{name: tools, tool_allowlist: [look]}";
    let document = Document::parse(text, Format::Yaml).unwrap();
    let layer = Layer { origin: "test".to_owned(), document };
    let policy = Arc::new(SandboxPolicy::new(vec![layer]).unwrap());
    CreateRequest { policy: Some(PolicyChoice::Documents(policy)), ..CreateRequest::default() }
}

#[tokio::test]
async fn a_call_comes_from_a_process_of_its_own_sandbox_or_from_none() {
    let setup = Setup::new().await;
    let (told, mut calls) = mpsc::unbounded_channel();
    setup.engine.serve_tools(Arc::new(Listener(told)));
    let calling = setup.engine.create(with_tools()).await.unwrap().id;
    let other = setup.create().await;
    let start = async |id: &SandboxId| {
        setup.engine.start(id.as_str(), exec(&["hang"])).await.unwrap().process.id
    };
    let (own, foreign) = (start(&calling).await, start(&other).await);
    let agent = setup.backend.agent(&calling);
    // While they are attended to, nobody needs to look into the store for them.
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    assert_eq!(database.execute("DELETE FROM processes", []).unwrap(), 2);
    let nobody = "x0000000000000000";
    for (claimed, expected) in
        [(own.as_str(), Some(&own)), (foreign.as_str(), None), (nobody, None), ("", None)]
    {
        let called = async {
            // It learns in its own time that somebody answers.
            while !agent.call_tool("look", claimed) {
                tokio::task::yield_now().await;
            }
            calls.recv().await.unwrap()
        };
        let call = tokio::time::timeout(Duration::from_secs(30), called).await.unwrap();
        assert_eq!((&call.sandbox, call.process.as_ref()), (&calling, expected), "{claimed}");
    }
}
