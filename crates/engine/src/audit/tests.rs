//! The log as its users see it: writers, readers, and those who tamper with it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use belljar_codes::Code;

use super::files::{Appender, MAX_OLD};
use super::*;

fn entry(action: &str) -> AuditEntry {
    AuditEntry {
        actor: "uid:0".to_owned(),
        tenant: "default".to_owned(),
        action: action.to_owned(),
        sandbox: Some("n001abcdefgh".to_owned()),
        outcome: "ok".to_owned(),
        ..AuditEntry::default()
    }
}

fn small(directory: &Path, max_file: u64, max_old: u32) -> AuditLog {
    AuditLog::at(Place { max_file, max_old, ..Place::new(directory) })
}

async fn all(log: &AuditLog, query: AuditQuery) -> Vec<AuditRecord> {
    let mut reader = log.query(query).await;
    let mut records = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        records.push(record);
    }
    records
}

fn actions(records: &[AuditRecord]) -> Vec<&str> {
    records.iter().map(|record| record.entry.action.as_str()).collect()
}

/// Rewrites a file of the log.
fn tamper(path: &Path, change: impl FnOnce(Vec<String>) -> Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = change(text.lines().map(str::to_owned).collect());
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

#[tokio::test]
async fn records_come_back_in_order_and_the_chain_holds() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::of(directory.path());
    for number in 0..500 {
        log.record(entry(&format!("a.{number}")));
    }
    let records = all(&log, AuditQuery::default()).await;
    assert_eq!(records.len(), 500);
    assert!(records.iter().zip(1..).all(|(record, seq)| record.seq == seq));
    assert_eq!(records[499].entry.action, "a.499");
    let report = log.verify(None).await.unwrap();
    assert_eq!((report.records, report.first_seq, report.last_seq), (500, 1, 500));
    assert_eq!(report.last_hash, records[499].hash);
}

#[tokio::test]
async fn filters_and_last() {
    let directory = tempfile::tempdir().unwrap();
    let log = small(directory.path(), 2000, 10);
    for number in 0..50 {
        let mut entry = entry(if number % 2 == 0 { "even" } else { "odd" });
        entry.actor = format!("uid:{number}");
        log.record(entry);
    }
    let query = |change: fn(&mut AuditQuery)| {
        let mut query = AuditQuery::default();
        change(&mut query);
        query
    };
    assert_eq!(all(&log, query(|q| q.action = Some("odd".to_owned()))).await.len(), 25);
    assert_eq!(all(&log, query(|q| q.actor = Some("uid:7".to_owned()))).await.len(), 1);
    assert_eq!(all(&log, query(|q| q.outcome = Some("oom".to_owned()))).await.len(), 0);
    assert_eq!(all(&log, query(|q| q.sandbox = Some("other".to_owned()))).await.len(), 0);
    let before = std::time::UNIX_EPOCH;
    assert_eq!(
        all(&log, AuditQuery { until: Some(before), ..AuditQuery::default() }).await.len(),
        0
    );
    assert_eq!(
        all(&log, AuditQuery { since: Some(before), ..AuditQuery::default() }).await.len(),
        50
    );
    let last = all(&log, AuditQuery { last: Some(30), ..AuditQuery::default() }).await;
    assert_eq!((last.len(), last[0].seq, last[29].seq), (30, 21, 50));
    let last = all(&log, query(|q| (q.last, q.action) = (Some(2), Some("odd".to_owned())))).await;
    assert_eq!(last.iter().map(|record| record.seq).collect::<Vec<_>>(), [48, 50]);
}

#[tokio::test]
async fn several_writers_make_one_chain() {
    let directory = tempfile::tempdir().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|writer| {
            let place = Place { max_file: 4000, ..Place::new(directory.path()) };
            std::thread::spawn(move || {
                let mut appender = Appender::new(place);
                for number in 0..50 {
                    let entry = entry(&format!("{writer}.{number}"));
                    appender.append(&[Timed { entry, time: now_ms() }]).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let log = small(directory.path(), 4000, MAX_OLD);
    let report = log.verify(None).await.unwrap();
    assert_eq!((report.records, report.last_seq), (200, 200));
}

#[tokio::test]
async fn old_files_go_and_the_rest_still_holds() {
    let directory = tempfile::tempdir().unwrap();
    let log = small(directory.path(), 1000, 3);
    for number in 0..100 {
        log.record(entry(&number.to_string()));
        log.flush().await;
    }
    let report = log.verify(None).await.unwrap();
    assert!(report.first_seq > 1 && report.last_seq == 100, "{report:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 5, "four files and the lock");

    // One of them missing is not the usual way.
    std::fs::remove_file(directory.path().join("audit.2.jsonl")).unwrap();
    assert_eq!(log.verify(None).await.unwrap_err().code(), Code::AuditBroken);
}

#[tokio::test]
async fn a_torn_line_is_removed_by_the_next_writer() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::of(directory.path());
    log.record(entry("one"));
    log.flush().await;
    let path = directory.path().join("audit.jsonl");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"seq\":2,\"time\":17").unwrap();
    assert_eq!(log.verify(None).await.unwrap().records, 1, "half a record is none");
    log.record(entry("two"));
    assert_eq!(actions(&all(&log, AuditQuery::default()).await), ["one", "two"]);
    assert_eq!(AuditLog::of(directory.path()).verify(None).await.unwrap().records, 2);
}

#[tokio::test]
async fn tampering_shows_with_the_first_bad_record() {
    let check = async |expected: &str, change: fn(Vec<String>) -> Vec<String>| {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::of(directory.path());
        for number in 1..=5 {
            log.record(entry(&number.to_string()));
        }
        log.flush().await;
        let report = log.verify(None).await.unwrap();
        let anchor = Some((report.last_seq, report.last_hash));
        log.verify(anchor.clone()).await.unwrap();
        tamper(&directory.path().join("audit.jsonl"), change);
        let error = log.verify(anchor).await.unwrap_err();
        assert_eq!(error.code(), Code::AuditBroken);
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
    };
    check("record 3 (line 3 of `audit.jsonl`)", |mut lines| {
        lines[2] = lines[2].replace("uid:0", "uid:9");
        lines
    })
    .await;
    check("record 3 (", |mut lines| {
        lines.remove(2);
        lines
    })
    .await;
    check("record 2 (", |mut lines| {
        lines.swap(1, 2);
        lines
    })
    .await;
    check("record 1 (", |mut lines| {
        lines.remove(0);
        lines
    })
    .await;
    check("record 4 (", |mut lines| {
        lines.insert(3, lines[0].clone());
        lines
    })
    .await;
    // Cut off at its end, a chain holds; only what was kept elsewhere tells.
    check("record 5 (the whole log)", |mut lines| {
        lines.pop();
        lines
    })
    .await;
}

#[tokio::test]
async fn following_goes_on_over_other_writers_and_new_files() {
    let directory = tempfile::tempdir().unwrap();
    let log = small(directory.path(), 1500, 5);
    log.record(entry("before"));
    let query = AuditQuery { last: Some(1), follow: true, ..AuditQuery::default() };
    let mut reader = log.query(query).await;
    let other = small(directory.path(), 1500, 5);
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(20), reader.next());
        next.await.unwrap().unwrap().unwrap().entry.action
    };
    assert_eq!(next().await, "before");
    for number in 0..12 {
        let writer = if number % 2 == 0 { &log } else { &other };
        writer.record(entry(&format!("n{number}")));
        assert_eq!(next().await, format!("n{number}"));
    }
}
