use belljar_api::v1;
use belljar_api::v1::sandboxes_client::SandboxesClient;

use crate::support::Server;

#[tokio::test]
async fn requests_are_counted_by_action_and_outcome() {
    let server = Server::start().await;
    let mut sandboxes = SandboxesClient::new(server.channel());
    let get = v1::GetSandboxRequest { sandbox: "nothing".to_owned() };
    sandboxes.get_sandbox(get).await.unwrap_err();
    let id = server.create().await;
    let (status, headers, text) = server.get("/metrics", &[]).await;
    assert_eq!(status, 200);
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    for line in [
        "belljar_requests_total{action=\"sandbox.get\",outcome=\"sandbox-not-found\"} ",
        "belljar_errors_total{code=\"sandbox-not-found\"} ",
        "belljar_request_seconds_bucket{action=\"sandbox.get\",le=\"0.001\"} ",
        "belljar_sandboxes{state=\"paused\"} 0",
        "belljar_sandboxes{state=\"ready\"} 1",
        "belljar_stage_seconds_count{stage=\"create\"} ",
        "belljar_sandboxes_created_total ",
        "belljar_processes 0",
        "# TYPE belljar_connections gauge",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(&id), "no sandbox is a label");
    server.stop().await;
}

/// Codes that no other test here meets: they may share a process.
#[tokio::test]
async fn what_is_turned_away_is_counted_once() {
    let server = Server::start().await;
    let counted = async |code: &str| {
        let (_, _, text) = server.get("/metrics", &[]).await;
        let name = format!("belljar_errors_total{{code=\"{code}\"}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&name));
        found.map_or(0, |number| number.parse::<u64>().unwrap())
    };
    for (path, status, code) in [
        ("/v1/nonesuch", 404, "route-not-found"),
        ("/v1/run", 405, "method-not-allowed"),
        ("/v1/sandboxes?nonesuch=1", 400, "invalid-argument"),
        ("/v1/policies/nonesuch", 404, "policy-not-found"),
    ] {
        let before = counted(code).await;
        assert_eq!(server.get(path, &[]).await.0, status, "{path}");
        assert_eq!(counted(code).await, before + 1, "{path}");
    }
    for (method, message, status, code) in [
        ("GetSandbox", &b"\x0a\xff"[..], tonic::Code::InvalidArgument, "invalid-argument"),
        ("Nonesuch", b"", tonic::Code::Unimplemented, "route-not-found"),
    ] {
        let before = counted(code).await;
        let refused = server.call_raw("Sandboxes", method, message).await;
        assert_eq!(refused.code(), status, "{method}");
        let problem = belljar_api::problem::from_status(&refused).unwrap();
        assert_eq!((problem.code.as_str(), problem.remedy.is_empty()), (code, false), "{method}");
        assert_eq!(counted(code).await, before + 1, "{method}");
    }
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_the_operators() {
    let server = Server::start().await;
    let wrong = [("authorization", "Bearer nonsense")];
    assert_eq!(server.get("/metrics", &wrong).await.0, 401);
    assert_eq!(server.get("/metrics", &[]).await.0, 200);
    server.stop().await;
}
