//! Sandboxes under a policy: what is asked, what is answered, what is on record, and that it lasts.

#![allow(clippy::unwrap_used, reason = "a helper that fails should fail the test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::{
    Asker, AuditEntry, AuditQuery, CreateRequest, Engine, Lease, PolicyChoice, PolicyName,
    Question, QuestionKind, SandboxPolicy,
};
use belljar_policy::document::{Action, Context, Document, Format, Layer};
use belljar_policy::{Asked, Environment, Limits, SandboxName};
use support::{Setup, exec, open};

const DENIES_PUBLISHING: &str = "
name: builds
rules:
  - {name: no-publishing, condition: {field: command, operator: matches, value: 'publish'}, action: deny, priority: 10, message: people publish}
  - {name: watched, condition: {field: program, operator: eq, value: 'echo'}, action: audit}
";

fn policy(text: &str) -> Arc<SandboxPolicy> {
    let document = Document::parse(text, Format::Yaml).unwrap();
    let layer = Layer { origin: "test".to_owned(), document };
    Arc::new(SandboxPolicy::new(vec![layer]).unwrap())
}

fn under(text: &str) -> CreateRequest {
    CreateRequest {
        policy: Some(PolicyChoice::Documents(policy(text))),
        ..CreateRequest::default()
    }
}

async fn decisions(engine: &Engine) -> Vec<AuditEntry> {
    let mut reader = engine.audit().query(AuditQuery::default()).await;
    let mut found = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        if record.entry.action.starts_with("policy.") {
            found.push(record.entry);
        }
    }
    found
}

#[tokio::test]
async fn commands_are_asked_about_and_answers_are_on_record() {
    let setup = Setup::new().await;
    let asker = Asker { actor: "key:k1".to_owned(), request_id: "r1".to_owned() };
    let engine = setup.engine.clone().asked_by(asker);
    let sandbox = engine.create(under(DENIES_PUBLISHING)).await.unwrap();
    let policy = sandbox.policy.clone().unwrap();
    assert_eq!((policy.name.as_str(), policy.version), ("builds", None));

    let denied = engine.exec(&sandbox.id, exec(&["npm", "publish"])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    assert_eq!(
        denied.to_string(),
        "policy `builds` denies this: rule `no-publishing`: people publish"
    );
    let denied = engine.start(sandbox.id.as_str(), exec(&["npm", "publish"])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    engine.exec(&sandbox.id, exec(&["echo", "hi"])).await.unwrap().wait().await.unwrap();

    let records = decisions(&engine).await;
    let seen: Vec<_> = records
        .iter()
        .map(|entry| (entry.action.as_str(), &*entry.detail["verdict"], entry.outcome.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("policy.create", "allow", "ok"),
            ("policy.exec", "deny", "policy-denied"),
            ("policy.exec", "deny", "policy-denied"),
            ("policy.exec", "audit", "ok"),
        ]
    );
    let denial = &records[1];
    assert_eq!(denial.detail["rule"], "no-publishing");
    assert_eq!(denial.detail["policy"], policy.digest);
    assert!(denial.detail["context"].contains(r#""command":"npm publish""#));
    assert_eq!((denial.actor.as_str(), denial.request_id.as_str()), ("key:k1", "r1"));
    assert_eq!(denial.sandbox.as_deref(), Some(sandbox.id.as_str()));
}

#[tokio::test]
async fn without_a_policy_nothing_is_asked() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    assert!(setup.engine.policy(&id).await.unwrap().is_none());
    let question = Question::new(QuestionKind::Tool, Context::new().with("tool", "x"));
    assert!(setup.engine.judge(&id, question).await.unwrap().permits());
    assert!(decisions(&setup.engine).await.is_empty());
}

#[tokio::test]
async fn questions_from_inside_have_a_share_of_the_log_and_those_of_callers_have_not() {
    const FLOOD: usize = 4000;
    let setup = Setup::new().await;
    let asker = Asker { actor: "key:k1".to_owned(), request_id: "r1".to_owned() };
    let (inside, caller) = (setup.engine.clone(), setup.engine.clone().asked_by(asker));
    let recorded = async |engine: &Engine| {
        let id = engine.create(under(DENIES_PUBLISHING)).await.unwrap().id;
        for _ in 0..FLOOD {
            let question = Question::new(QuestionKind::Tool, Context::new().with("tool", "x"));
            engine.judge(&id, question).await.unwrap();
        }
        let records = decisions(&setup.engine).await;
        let tools = records.iter().filter(|entry| entry.action == "policy.tool");
        tools.filter(|entry| entry.sandbox.as_deref() == Some(id.as_str())).count()
    };
    assert!(recorded(&inside).await < FLOOD);
    assert_eq!(recorded(&caller).await, FLOOD);
}

#[tokio::test]
async fn a_policy_outlives_the_engine_that_was_given_it() {
    let setup = Setup::new().await;
    let sandbox = setup.engine.create(under(DENIES_PUBLISHING)).await.unwrap();
    let later = open(&setup.state(), &setup.backend).await;
    assert_eq!(later.inspect(sandbox.id.as_str()).await.unwrap().policy, sandbox.policy);
    let denied = later.exec(&sandbox.id, exec(&["npm", "publish"])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
}

#[tokio::test]
async fn any_part_can_ask() {
    let setup = Setup::new().await;
    let text = "
name: tools
defaults: {action: deny}
rules:
  - {name: search, condition: {field: tool, operator: eq, value: search}, action: allow}
  - {name: broken, condition: {field: arguments.limit, operator: gt, value: 3}, action: allow, priority: 5}
";
    let sandbox = setup.engine.create(under(text)).await.unwrap();
    let ask = async |context: Context| {
        let question = Question::new(QuestionKind::Tool, context);
        setup.engine.judge(&sandbox.id, question).await.unwrap()
    };
    let allowed = ask(Context::new().with("tool", "search")).await;
    assert_eq!((allowed.verdict, allowed.rule.as_deref()), (Action::Allow, Some("search")));
    let denied = ask(Context::new().with("tool", "other")).await;
    assert_eq!((denied.verdict, &denied.rule), (Action::Deny, &None));
    let error = denied.permitted().unwrap_err();
    assert_eq!(error.to_string(), "policy `tools` denies this: no rule allows it");
    // What cannot be evaluated is denied, though a rule would allow it.
    let context = Context::new().with("tool", "search").with("arguments.limit", "many");
    assert_eq!(ask(context).await.verdict, Action::Deny);
}

#[tokio::test]
async fn a_rule_can_refuse_a_creation_and_the_default_cannot() {
    let setup = Setup::new().await;
    let text = "
name: strict
defaults: {action: deny}
rules:
  - {name: not-as-root, condition: {field: user, operator: eq, value: root}, action: deny}
";
    setup.engine.create(under(text)).await.unwrap();
    let as_root = CreateRequest { user: "root".parse().unwrap(), ..under(text) };
    let denied = setup.engine.create(as_root).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    assert!(denied.to_string().contains("not-as-root"), "{denied}");
    let records = decisions(&setup.engine).await;
    assert_eq!(records.last().unwrap().sandbox, None);
}

#[tokio::test]
async fn policies_are_kept_in_versions() {
    let setup = Setup::new().await;
    let policies = setup.engine.policies();
    let name = |text: &str| text.parse::<PolicyName>().unwrap();
    let web = name("web");
    let put = async |text: &str| policies.put(&web, &policy(text)).await.unwrap().version;
    assert_eq!(put("name: one").await, 1);
    assert_eq!(put("name: one").await, 1);
    assert_eq!(put("name: two").await, 2);
    assert_eq!(policies.get(&name("web@1")).await.unwrap().1.document.name, "one");
    assert_eq!(policies.get(&web).await.unwrap().1.document.name, "two");
    let versions = async |of: Option<&str>| {
        let listed = policies.list(of).await.unwrap();
        listed.iter().map(|kept| kept.version).collect::<Vec<_>>()
    };
    assert_eq!(versions(None).await, [2]);
    assert_eq!(versions(Some("web")).await, [2, 1]);

    let request = CreateRequest {
        policy: Some(PolicyChoice::Kept(name("web@1"))),
        ..CreateRequest::default()
    };
    let sandbox = setup.engine.create(request).await.unwrap();
    let runs_under = sandbox.policy.unwrap();
    assert_eq!((runs_under.name.as_str(), runs_under.version), ("web", Some(1)));

    policies.remove(&name("web@2")).await.unwrap();
    assert_eq!(policies.get(&web).await.unwrap().0.version, 1);
    policies.remove(&web).await.unwrap();
    assert_eq!(policies.get(&web).await.unwrap_err().code(), Code::PolicyNotFound);
    assert_eq!(policies.remove(&web).await.unwrap_err().code(), Code::PolicyNotFound);
    // A number means one document for ever, and the sandbox goes on.
    assert_eq!(put("name: three").await, 3);
    assert!(setup.engine.policy(&sandbox.id).await.unwrap().is_some());

    let other = setup.tenant("other").await;
    assert!(other.policies().list(None).await.unwrap().is_empty());
    assert_eq!(other.policies().get(&web).await.unwrap_err().code(), Code::PolicyNotFound);
}

#[tokio::test]
async fn the_document_becomes_the_sandbox() {
    let setup = Setup::new().await;
    let text = "
name: small
defaults: {max_memory_mb: 128, timeout_seconds: 20}
processes: {lifetime_seconds: 100}
environment: {allow: [LANG]}
";
    let sandbox = setup.engine.create(under(text)).await.unwrap();
    assert_eq!(sandbox.limits.memory_bytes.value, 128 << 20);
    assert_eq!(sandbox.isolation.timeout_secs, 20);
    assert_eq!(sandbox.hard_limit, Some(Duration::from_secs(100)));

    let mut request = exec(&["true"]);
    (request.timeout, request.timeout_asked) = (Some(Duration::from_secs(21)), true);
    let denied = setup.engine.exec(&sandbox.id, request).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    let mut request = exec(&["true"]);
    request.environment = Environment::parse(["OTHER=1"]).unwrap();
    assert_eq!(
        setup.engine.exec(&sandbox.id, request).await.unwrap_err().code(),
        Code::PolicyDenied
    );
    let info = setup.engine.start(sandbox.id.as_str(), exec(&["true"])).await.unwrap().process;
    assert_eq!(info.timeout, Some(Duration::from_secs(20)));

    let extend = async |seconds| {
        let lease = Lease { hard: Some(Duration::from_secs(seconds)), idle: None };
        setup.engine.extend(sandbox.id.as_str(), lease).await.map_err(|error| error.code())
    };
    assert_eq!(extend(200).await.err(), Some(Code::PolicyDenied));
    assert_eq!(extend(0).await.err(), Some(Code::PolicyDenied));
    assert!(extend(50).await.is_ok());

    let more = CreateRequest {
        limits: Limits { memory_bytes: Asked::by_caller(256 << 20), ..Limits::default() },
        ..under(text)
    };
    let refused = setup.engine.create(more.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PolicyDenied);
    assert_eq!(setup.engine.explain(&more).await.unwrap_err().code(), Code::PolicyDenied);
}

#[tokio::test]
async fn changes_to_files_are_asked_about() {
    let setup = Setup::new().await;
    let text = "
name: files
rules:
  - {name: no-hooks, condition: {field: path, operator: matches, value: '/\\.git/hooks'}, action: deny}
";
    let sandbox = setup.engine.create(under(text)).await.unwrap();
    let root = setup.directory.path().join("files");
    std::fs::create_dir(&root).unwrap();
    let hooks = root.join("a/../.git/hooks");
    let denied = setup.engine.write_file(&sandbox.id, &hooks.join("x"), b"").await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    let files = setup.engine.files(&sandbox.id).await.unwrap();
    let denied = files.make_directory(&hooks, true).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    let denied = files.rename(&root.join("b"), &hooks, false).await.unwrap_err();
    assert_eq!(denied.code(), Code::PolicyDenied);
    setup.engine.write_file(&sandbox.id, &root.join("b"), b"x").await.unwrap();
    assert!(!root.join(".git").exists());
    let verdicts: Vec<_> = decisions(&setup.engine).await;
    let verdicts: Vec<_> = verdicts
        .iter()
        .filter(|entry| entry.action == "policy.file-write")
        .map(|entry| entry.detail["verdict"].as_str())
        .collect();
    assert_eq!(verdicts, ["deny", "deny", "allow", "deny", "allow"]);
}

#[tokio::test]
async fn recording_permits_everything_and_writes_it_down() {
    let setup = Setup::new().await;
    let request = CreateRequest { policy: Some(PolicyChoice::Record), ..CreateRequest::default() };
    let sandbox = setup.engine.create(request).await.unwrap();
    assert!(sandbox.policy.unwrap().recording);
    setup.run(&sandbox.id, &["echo", "hi"]).await;
    let records = decisions(&setup.engine).await;
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].detail["verdict"], "allow");
}

#[tokio::test]
async fn a_policy_that_is_one_too_many_leaves_nothing() {
    let setup = Setup::new().await;
    let policies = setup.engine.policies();
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    let many =
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1000)
                INSERT INTO policies (tenant, name, version, digest, created_at)
                SELECT 'default', 'many', n, 'digest ' || n, n FROM number";
    database.execute(many, []).unwrap();
    let (name, document) = ("web".parse().unwrap(), policy("name: web"));
    let error = policies.put(&name, &document).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.remedy().unwrap().contains("`belljar policy rm "));
    let documents = || {
        let count = "SELECT count(*) FROM policy_documents";
        database.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(documents(), 0);
    policies.remove(&"many@3".parse().unwrap()).await.unwrap();
    assert_eq!(policies.put(&name, &document).await.unwrap().version, 1);
    assert_eq!(documents(), 1);
}

#[tokio::test]
async fn a_policy_that_did_not_change_is_put_again_at_the_limit() {
    let setup = Setup::new().await;
    let policies = setup.engine.policies();
    let (name, document) = ("web".parse().unwrap(), policy("name: web"));
    let first = policies.put(&name, &document).await.unwrap();
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    // With that one, as many versions and bytes as there may be.
    let many =
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 998)
                INSERT INTO policies (tenant, name, version, digest, created_at)
                SELECT 'default', 'many', n, 'digest', n FROM number";
    database.execute(many, []).unwrap();
    let large = "INSERT INTO policy_documents (digest, layers, tenant)
                 SELECT 'digest', zeroblob((256 << 20) - sum(octet_length(layers))), 'default' FROM policy_documents";
    database.execute(large, []).unwrap();
    // Documents that are kept already take nothing more, also under another name.
    policies.put(&"other".parse().unwrap(), &document).await.unwrap();
    assert_eq!(policies.put(&name, &document).await.unwrap(), first);
    let third = policies.put(&"third".parse().unwrap(), &document).await.unwrap_err();
    assert_eq!(third.code(), Code::QuotaExceeded);
    let new = policies.put(&name, &policy("name: changed")).await.unwrap_err();
    assert_eq!(new.code(), Code::QuotaExceeded);
    // There is room again as soon as versions are removed.
    policies.remove(&"many".parse().unwrap()).await.unwrap();
    policies.put(&name, &policy("name: changed")).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_that_is_refused_leaves_nothing_of_its_policy() {
    let setup = Setup::new().await;
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    let documents = || {
        let count = "SELECT count(*) FROM policy_documents";
        database.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let create = |number: u32| {
        let document = PolicyChoice::Documents(policy(&format!("name: p{number}")));
        let name = Some(SandboxName::parse("web").unwrap());
        setup.engine.create(CreateRequest { name, policy: Some(document), ..Default::default() })
    };
    let made = create(0).await.unwrap();
    assert_eq!(documents(), 1);
    for number in 1..4 {
        let error = create(number).await.unwrap_err();
        assert_eq!(error.code(), Code::SandboxExists);
    }
    assert_eq!(documents(), 1);
    // One that others run under is found, and stays.
    setup.engine.destroy(made.id.as_str()).await.unwrap();
    create(0).await.unwrap();
    assert_eq!(documents(), 1);
}
