//! Messages as JSON: the shape that REST answers with and `--json` prints.

use belljar_api::v1::{
    Channel, CreateSandboxRequest, FollowLogRequest, Process, ProcessOutput, ProcessStatus, Reason,
    Sandbox, SandboxState,
};
use prost_types::Timestamp;
use serde_json::{Value, json};

#[test]
fn enums_are_words_and_times_are_rfc3339() {
    let sandbox = Sandbox {
        sandbox_id: "n001abcdefgh".into(),
        state: SandboxState::Ready.into(),
        created_at: Some(Timestamp { seconds: 0, nanos: 5_000_000 }),
        ..Sandbox::default()
    };
    let value = serde_json::to_value(&sandbox).unwrap();
    assert_eq!(value["state"], "ready");
    assert_eq!(value["created_at"], "1970-01-01T00:00:00.005Z");
    assert_eq!(value["expires_at"], Value::Null);
    assert_eq!(value["name"], Value::Null);
    assert_eq!(serde_json::from_value::<Sandbox>(value).unwrap(), sandbox);
}

#[test]
fn optional_and_repeated_words() {
    let ended = Process {
        status: ProcessStatus::Failed.into(),
        reason: Some(Reason::TimedOut.into()),
        ..Process::default()
    };
    let value = serde_json::to_value(&ended).unwrap();
    assert_eq!((&value["status"], &value["reason"]), (&json!("failed"), &json!("timed_out")));
    assert_eq!(serde_json::to_value(Process::default()).unwrap()["reason"], Value::Null);

    let request: FollowLogRequest =
        serde_json::from_value(json!({"process_id": "p", "channels": ["stderr"]})).unwrap();
    assert_eq!(request.channels, [i32::from(Channel::Stderr)]);
}

#[test]
fn bytes_are_base64() {
    let output = ProcessOutput { data: b"\xff\x00a"[..].into(), ..ProcessOutput::default() };
    let value = serde_json::to_value(&output).unwrap();
    assert_eq!(value["data"], "/wBh");
    assert_eq!(serde_json::from_value::<ProcessOutput>(value).unwrap(), output);
}

#[test]
fn what_is_absent_is_default_and_what_is_unknown_is_refused() {
    let request: CreateSandboxRequest = serde_json::from_value(json!({"name": "a"})).unwrap();
    assert_eq!(request, CreateSandboxRequest { name: Some("a".into()), ..Default::default() });
    let error = serde_json::from_value::<CreateSandboxRequest>(json!({"nmae": "a"})).unwrap_err();
    assert!(error.to_string().contains("nmae"), "{error}");
    let error = serde_json::from_value::<Sandbox>(json!({"state": "asleep"})).unwrap_err();
    assert!(error.to_string().contains("ready"), "{error}");
}
