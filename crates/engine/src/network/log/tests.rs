use super::*;

fn entry(number: u16, denied: bool) -> NetworkEntry {
    NetworkEntry {
        at: from_ms(1_700_000_000_000),
        stage: "flow".to_owned(),
        transport: "tcp".to_owned(),
        host: Some("example.com".to_owned()),
        address: Some([192, 0, 2, 1].into()),
        port: number,
        sni: None,
        method: None,
        path: Some("x".repeat(900)),
        rule: None,
        denied,
        reason: "allowed".to_owned(),
        bytes_up: 1,
        bytes_down: 2,
        duration: Duration::from_micros(3),
        owner: Some(Owner { pid: 9, program: "curl".to_owned(), process: None }),
    }
}

async fn ports(mut log: NetworkLog) -> Vec<u16> {
    let mut ports = Vec::new();
    while let Some(entry) = log.next().await.unwrap() {
        ports.push(entry.port);
    }
    ports
}

/// Waits for what was written to be in the file.
async fn written(logs: &Logs, count: u64) {
    logs.written.clone().wait_for(|written| *written >= count).await.unwrap();
}

#[tokio::test]
async fn entries_are_read_back_filtered_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let logs = Logs::new(directory.path().to_owned());
    let id = SandboxId::parse("n001abcdefgh").unwrap();
    assert!(ports(logs.read(&id, NetworkQuery::default(), None)).await.is_empty());
    for number in 1..=4 {
        logs.write(&id, entry(number, number % 2 == 0));
    }
    written(&logs, 4).await;
    let mut all = logs.read(&id, NetworkQuery::default(), None);
    assert_eq!(all.next().await.unwrap(), Some(entry(1, false)));
    let denied = NetworkQuery { denied: true, ..NetworkQuery::default() };
    assert_eq!(ports(logs.read(&id, denied, None)).await, [2, 4]);
    let last = NetworkQuery { last: Some(1), ..NetworkQuery::default() };
    assert_eq!(ports(logs.read(&id, last, None)).await, [4]);
    let mut followed =
        logs.read(&id, NetworkQuery { follow: true, last: Some(1), denied: false }, None);
    assert_eq!(followed.next().await.unwrap().unwrap().port, 4);
    logs.write(&id, entry(5, false));
    assert_eq!(followed.next().await.unwrap().unwrap().port, 5);
}

#[tokio::test]
async fn the_log_is_bounded_and_a_follower_misses_nothing_that_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let logs = Logs::new(directory.path().to_owned());
    let id = SandboxId::parse("n001abcdefgh").unwrap();
    let mut followed =
        logs.read(&id, NetworkQuery { follow: true, ..NetworkQuery::default() }, None);
    for number in 0..12_000 {
        while logs.queue.try_send((id.clone(), entry(number, false))).is_err() {
            tokio::task::yield_now().await;
        }
        if number % 1000 == 999 {
            written(&logs, u64::from(number) + 1).await;
            for expected in number - 999..=number {
                assert_eq!(followed.next().await.unwrap().unwrap().port, expected);
            }
        }
    }
    let size =
        |name: &str| fs::metadata(directory.path().join(id.as_str()).join(name)).unwrap().len();
    assert!(size("current") <= MAX_PART + 4096 && size("previous") <= MAX_PART + 4096);
}
