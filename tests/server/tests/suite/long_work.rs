//! Requests that compute for long: the others are answered meanwhile.

use std::fmt::Write as _;

use belljar_api::v1;
use belljar_client::Client;
use belljar_server_tests::{Host, create, create_with, exec};

/// Answers to others that must come while one long request is under way. A server that computes it where it answers
/// gives fewer, between the parts of the work.
const ANSWERS: usize = 100;

/// What is long on a slow machine may be over soon on a fast one, so it may be tried with more and more.
const ROUNDS: usize = 5;

/// How many answers others got while `work` was under way.
async fn answers(other: &Client, work: impl Future<Output = ()>) -> usize {
    let mut work = std::pin::pin!(work);
    let mut answers = 0;
    loop {
        let mut system = other.system.clone();
        tokio::select! {
            biased;
            () = &mut work => return answers,
            answer = system.get_caller(v1::GetCallerRequest {}) => {
                answer.expect("answered");
                answers += 1;
            }
        }
    }
}

async fn others_are_answered(what: &str, other: &Client, work: impl AsyncFn(usize)) {
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        all.push(answers(other, work(round)).await);
        if all.last() >= Some(&ANSWERS) {
            return;
        }
    }
    panic!("{what} holds the server up: others got {all:?} answers meanwhile");
}

/// Rules that no command meets, each with a pattern of its own; at most about as many as a document may have.
fn document(round: usize) -> String {
    let mut text = "name: long\nrules:\n".to_owned();
    for number in 0..(500 << round).min(1900) {
        let condition =
            format!("{{field: command, operator: matches, value: '^x{number}[a-z]+$'}}");
        writeln!(text, "  - {{name: r{number}, condition: {condition}, action: deny}}").unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_policy_holds_nobody_up() {
    let Some(host) = Host::serving("long policies") else { return };
    let (client, other) = (host.client().await, host.client().await);
    others_are_answered("keeping a policy", &other, async |round| {
        let request = v1::PutPolicyRequest {
            name: "long".to_owned(),
            documents: vec![v1::PolicyDocument { text: document(round), ..Default::default() }],
            ..Default::default()
        };
        client.policies.clone().put_policy(request).await.expect("kept");
    })
    .await;
    // The first question makes all patterns ready.
    others_are_answered("asking a policy", &other, async |round| {
        let policy = v1::PolicySpec { document: Some(document(round)), ..Default::default() };
        let request = v1::CreateSandboxRequest { policy: Some(policy), ..Default::default() };
        let sandbox = create_with(&client, request).await.sandbox_id;
        assert_eq!(exec(&client, &sandbox, "echo asked").await.stdout, "asked\n");
    })
    .await;
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_with_a_large_pattern_holds_nobody_up() {
    let Some(host) = Host::serving("long searches") else { return };
    let (client, other) = (host.client().await, host.client().await);
    let sandbox = create(&client).await;
    // Each byte is compared with as many states as the pattern repeats.
    let line = "import random; print(''.join(random.choices('ab', k=20000)) + 'd')";
    let made = exec(&client, &sandbox, &format!("python3 -c \"{line}\" > /workspace/line")).await;
    assert_eq!(made.stderr, "");
    others_are_answered("searching", &other, async |round| {
        let request = v1::SearchFilesRequest {
            sandbox: sandbox.clone(),
            path: "/workspace".to_owned(),
            content: Some(format!("a[ab]{{{}}}c", 100 << round)),
            regex: true,
            ..Default::default()
        };
        let hits = client.files.clone().search_files(request).await.expect("searched");
        assert_eq!(hits.into_inner().message().await.expect("searched"), None);
    })
    .await;
    // The same way, something is found.
    let request = v1::SearchFilesRequest {
        sandbox: sandbox.clone(),
        path: "/workspace".to_owned(),
        content: Some("[ab]{3}d$".to_owned()),
        regex: true,
        ..Default::default()
    };
    let mut hits = client.files.clone().search_files(request).await.unwrap().into_inner();
    let hit = hits.message().await.unwrap().expect("a hit");
    assert_eq!((hit.line, hit.column), (Some(1), Some(19_998)));
    assert_eq!(hits.message().await.unwrap(), None);
    host.finish().await;
}
