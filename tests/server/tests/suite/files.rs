//! Large files pass through the server without staying in it.

use belljar_api::v1;
use belljar_server_tests::{Host, create_with, exec, measure};
use bytes::Bytes;

const SIZE: usize = 300 << 20;
const PIECE: usize = 256 << 10;

/// What the server may grow by while a file passes through it: windows and buffers, not the file.
const ROOM: u64 = 48 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_megabytes_in_constant_memory() {
    let Some(host) = Host::serving("large_files") else { return };
    let client = host.client().await;
    let limits = v1::Limits { disk_bytes: Some(1 << 30), ..v1::Limits::default() };
    let request = v1::CreateSandboxRequest {
        limits: Some(limits),
        best_effort: true,
        working_directory: None,
        ..v1::CreateSandboxRequest::default()
    };
    let sandbox = create_with(&client, request).await.sandbox_id;
    exec(&client, &sandbox, "true").await;
    let server = host.server_process();
    let before = measure::usage(server).unwrap().resident;
    measure::reset_peak(server);

    let piece = Bytes::from((0..PIECE).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let path = "/output/large".to_owned();
    let mut head = Some((sandbox.clone(), path.clone()));
    let pieces = (0..SIZE / PIECE).map({
        let piece = piece.clone();
        move |_| {
            let (sandbox, path) = head.take().unwrap_or_default();
            let data = piece.clone();
            v1::WriteFileRequest { sandbox, path, data, ..v1::WriteFileRequest::default() }
        }
    });
    let written = client.files.clone().write_file(tokio_stream::iter(pieces)).await.unwrap();
    assert_eq!(written.into_inner().size, SIZE as u64);
    let request = v1::ReadFileRequest { sandbox: sandbox.clone(), path, ..Default::default() };
    let mut stream = client.files.clone().read_file(request.clone()).await.unwrap().into_inner();
    let mut read = 0usize;
    while let Some(chunk) = stream.message().await.unwrap() {
        for (at, byte) in chunk.data.iter().enumerate().step_by(997) {
            assert_eq!(*byte, piece[(read + at) % PIECE], "at {}", read + at);
        }
        read += chunk.data.len();
    }
    assert_eq!(read, SIZE);
    // A range from the middle.
    let request = v1::ReadFileRequest { offset: PIECE as u64 + 7, length: Some(1000), ..request };
    let mut stream = client.files.clone().read_file(request).await.unwrap().into_inner();
    let mut range = Vec::new();
    while let Some(chunk) = stream.message().await.unwrap() {
        range.extend_from_slice(&chunk.data);
    }
    assert_eq!(range, piece[7..1007]);
    let peak = measure::peak(server).unwrap();
    println!("resident before {} MiB, peak {} MiB", before >> 20, peak >> 20);
    assert!(peak < before + ROOM, "{} MiB became {} MiB", before >> 20, peak >> 20);
    host.finish().await;
}
