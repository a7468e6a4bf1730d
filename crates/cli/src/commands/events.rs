//! `belljar events`.

use belljar_api::{rfc3339, v1};

use super::{Done, enumeration};
use crate::args::EventsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, print, print_json_line, word};

pub(crate) async fn events(context: &Context, args: &EventsArgs) -> Result<Done, Failure> {
    let request = v1::WatchEventsRequest {
        // Who only looks wants what has happened; who follows wants what comes.
        since: args.since.or((!args.follow).then_some(0)),
        sandbox: args.sandbox.clone(),
        kinds: enumeration::<v1::EventKind>(&args.kind)?,
        once: !args.follow,
    };
    context
        .with_client(async |mut client| {
            let mut events = client.sandboxes.watch_events(request).await?.into_inner();
            while let Some(event) = events.message().await? {
                if args.json {
                    print_json_line(&event)?;
                } else {
                    print(&render(&event))?;
                }
            }
            Ok(Done::Success)
        })
        .await
}

/// `12  2026-01-02T03:04:05.678Z  process-ended  n0a1…  p3b4…  exit_code=0`.
fn render(event: &v1::Event) -> String {
    let at = event.at.as_ref().map(rfc3339).unwrap_or_default();
    let kind = word(&event.kind()).replace('_', "-");
    let process = event.process_id.as_deref().unwrap_or("-");
    let mut line = format!("{:<6}  {at}  {kind:<17}  {}  {process}", event.seq, event.sandbox_id);
    for (name, value) in &event.detail {
        line.push_str(&format!("  {name}={value}"));
    }
    let line = line.replace(['\n', '\r'], "\u{fffd}");
    Inert::default().push(line.as_bytes()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_harmless_line() {
        let event = v1::Event {
            seq: 7,
            kind: v1::EventKind::ProcessEnded.into(),
            sandbox_id: "s1".into(),
            process_id: Some("p1".into()),
            detail: [("command".to_owned(), "a\n\u{1b}b".to_owned())].into(),
            ..v1::Event::default()
        };
        let expected = "7         process-ended      s1  p1  command=a\u{fffd}␛b\n";
        assert_eq!(render(&event), expected);
    }
}
