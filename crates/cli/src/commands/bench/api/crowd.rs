//! Many at once: followers of one noisy log, and connections that do nothing.

use std::fmt;
use std::time::Instant;

use belljar_api::v1;
use belljar_client::Client;
use belljar_policy::limits::format_bytes;
use serde::Serialize;

use super::super::beside::Beside;
use super::rest::{Rest, broken};
use super::{create, destroy};
use crate::failure::Failure;

/// What the noisy command writes: enough to show growth if there were any.
const NOISE: &str = "head -c 16000000 /dev/zero | tr '\\0' 'x'; echo done";
const NOISE_BYTES: u64 = 16_000_005;

/// Streams on one connection, well below what the server takes.
const PER_CONNECTION: u32 = 50;

#[derive(Debug, Serialize)]
pub(super) struct Followers {
    count: u32,
    bytes_each: u64,
    seconds: f64,
    server_before_bytes: u64,
    server_peak_bytes: u64,
    /// At a quarter, half, three quarters and the end of that time: what does not grow is flat.
    server_bytes_over_time: Vec<u64>,
}

impl Followers {
    pub(super) async fn measure(
        beside: &Beside,
        client: &Client,
        count: u32,
    ) -> Result<Self, Failure> {
        let sandbox = create(client).await?;
        let server_before_bytes = beside.resident_bytes();
        let measured = async {
            let command = v1::Command { shell: Some(NOISE.to_owned()), ..v1::Command::default() };
            let request = v1::StartProcessRequest {
                sandbox: sandbox.clone(),
                command: Some(command),
                ..v1::StartProcessRequest::default()
            };
            let begun = Instant::now();
            let process = client.processes.clone().start_process(request).await?.into_inner();
            let mut clients = Vec::new();
            for _ in 0..count.div_ceil(PER_CONNECTION) {
                clients.push(beside.client().await?);
            }
            let all = futures_util::future::try_join_all((0..count).map(|number| {
                let client = &clients[(number / PER_CONNECTION) as usize];
                follow(client, &process.process_id)
            }));
            let mut seen = Vec::new();
            let mut look = tokio::time::interval(std::time::Duration::from_millis(50));
            let mut all = std::pin::pin!(all);
            let received = loop {
                tokio::select! {
                    received = &mut all => break received?,
                    _ = look.tick() => seen.push(beside.resident_bytes()),
                }
            };
            let least = received.into_iter().min().unwrap_or(0);
            Ok::<_, Failure>((least, seen, begun.elapsed().as_secs_f64()))
        }
        .await;
        destroy(client, sandbox).await?;
        let (bytes_each, seen, seconds) = measured?;
        Ok(Self {
            count,
            bytes_each,
            seconds,
            server_before_bytes,
            server_peak_bytes: seen.iter().copied().fold(server_before_bytes, u64::max),
            server_bytes_over_time: at_quarters(&seen),
        })
    }
}

/// What was seen after each quarter.
fn at_quarters(seen: &[u64]) -> Vec<u64> {
    (1..=4)
        .filter_map(|quarter| seen.get((seen.len() * quarter).div_ceil(4).wrapping_sub(1)).copied())
        .collect()
}

async fn follow(client: &Client, process: &str) -> Result<u64, Failure> {
    let request = v1::FollowLogRequest {
        process_id: process.to_owned(),
        follow: true,
        ..v1::FollowLogRequest::default()
    };
    let mut outputs = client.processes.clone().follow_log(request).await?.into_inner();
    let mut received = 0;
    while let Some(output) = outputs.message().await? {
        received += output.data.len() as u64;
    }
    Ok(received)
}

impl fmt::Display for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = NOISE_BYTES.saturating_sub(self.bytes_each);
        let over_time: Vec<_> =
            self.server_bytes_over_time.iter().map(|bytes| format_bytes(*bytes)).collect();
        write!(
            f,
            "{} followers of one log of {}: {:.1} s, {missing} bytes missing, the server's memory {} before and {} at most; \
             after each quarter of that time {}",
            self.count,
            format_bytes(NOISE_BYTES),
            self.seconds,
            format_bytes(self.server_before_bytes),
            format_bytes(self.server_peak_bytes),
            over_time.join(", "),
        )
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Idle {
    connections: u32,
    server_before_bytes: u64,
    server_after_bytes: u64,
}

impl Idle {
    /// Each connection asks once and then stays.
    pub(super) async fn measure(beside: &Beside, connections: u32) -> Result<Self, Failure> {
        let server_before_bytes = beside.resident_bytes();
        let mut kept = Vec::new();
        for _ in 0..connections {
            let mut rest = Rest::connect(beside.tcp()).await?;
            rest.ask(hyper::Method::GET, "/healthz", &serde_json::Value::Null).await?;
            kept.push(rest);
        }
        let server_after_bytes = beside.resident_bytes();
        // All of them still answer: nothing was measured that had gone.
        for rest in kept.iter_mut().rev().take(10) {
            rest.ask(hyper::Method::GET, "/healthz", &serde_json::Value::Null).await?;
        }
        let first = kept.first_mut().map(|rest| rest.is_open());
        if first == Some(false) {
            return Err(broken(&std::io::Error::other("idle connections were closed")));
        }
        Ok(Self { connections, server_before_bytes, server_after_bytes })
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} idle connections: the server's memory {} before and {} with them",
            self.connections,
            format_bytes(self.server_before_bytes),
            format_bytes(self.server_after_bytes),
        )
    }
}
