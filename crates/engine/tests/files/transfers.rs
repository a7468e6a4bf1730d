//! Reading and writing, finished and given up.

use std::path::Path;

use belljar_codes::Code;
use belljar_engine::{WriteMode, WriteOptions};

use crate::{Setup, eventually};

fn options(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, ..WriteOptions::default() }
}

#[tokio::test]
async fn a_writer_that_is_given_up_leaves_no_new_file() {
    let setup = Setup::new().await;
    setup.write("old", "old");
    let piece = vec![1; 1 << 20];
    for mode in [WriteMode::CreateNew, WriteMode::Replace] {
        let mut writer = setup.files.write(&setup.path("new"), options(mode)).await.unwrap();
        writer.write(&piece).await.unwrap();
        drop(writer);
        eventually(|| setup.tree("") == ["old"]).await;
        let mut writer = setup.files.write(&setup.path("new"), options(mode)).await.unwrap();
        writer.write(&piece).await.unwrap();
        writer.abort();
        eventually(|| setup.tree("") == ["old"]).await;
    }
    let mut writer =
        setup.files.write(&setup.path("old"), options(WriteMode::Replace)).await.unwrap();
    writer.write(b"half").await.unwrap();
    drop(writer);
    eventually(|| setup.tree("") == ["old"]).await;
    assert_eq!(std::fs::read(setup.path("old")).unwrap(), b"old");
    // Giving up the making of a file that exists does not remove it.
    for content in [&b""[..], b"x", &piece] {
        let mut writer =
            setup.files.write(&setup.path("old"), options(WriteMode::CreateNew)).await.unwrap();
        let _ = writer.write(content).await;
        drop(writer);
    }
    let mut writer =
        setup.files.write(&setup.path("new"), options(WriteMode::Replace)).await.unwrap();
    writer.write(b"whole").await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 5);
    assert_eq!(std::fs::read(setup.path("old")).unwrap(), b"old");
    assert_eq!(std::fs::read(setup.path("new")).unwrap(), b"whole");
    assert_eq!(setup.tree(""), ["new", "old"]);
    setup.end().await;
}

#[tokio::test]
async fn many_abandoned_readers_and_writers_leave_nothing_running() {
    let setup = Setup::new().await;
    setup.write("large", vec![0; 4 << 20]);
    // More than the agent does at once: each must have ended.
    for _ in 0..100 {
        let mut reader = setup.files.read(&setup.path("large"), 0, None).await.unwrap();
        assert!(reader.next().await.unwrap().is_some());
        let mut writer =
            setup.files.write(&setup.path("in-place"), WriteOptions::default()).await.unwrap();
        writer.write(b"x").await.unwrap();
    }
    setup.end().await;
}

#[tokio::test]
async fn more_than_the_limit_is_refused() {
    let setup = Setup::new().await;
    let limited = WriteOptions { limit: Some(10), ..options(WriteMode::Replace) };
    let mut writer = setup.files.write(&setup.path("f"), limited).await.unwrap();
    writer.write(b"0123456789").await.unwrap();
    assert_eq!(writer.write(b"x").await.unwrap_err().code(), Code::RequestTooLarge);
    drop(writer);
    eventually(|| setup.tree("").is_empty()).await;
    let mut writer = setup.files.write(&setup.path("f"), limited).await.unwrap();
    writer.write(b"0123456789").await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 10);
    setup.end().await;
}

#[tokio::test]
async fn a_file_that_grows_while_it_is_read_has_an_end() {
    let setup = Setup::new().await;
    let size = 2 << 20;
    setup.write("grows", vec![b'a'; size]);
    let mut reader = setup.files.read(&setup.path("grows"), 0, None).await.unwrap();
    let mut received = reader.next().await.unwrap().unwrap().len();
    setup.append("grows", &vec![b'a'; size]);
    while let Some(piece) = reader.next().await.unwrap() {
        received += piece.len();
    }
    assert_eq!(received, size);
    setup.write("shrinks", vec![b'a'; size]);
    let mut reader = setup.files.read(&setup.path("shrinks"), 0, None).await.unwrap();
    let mut received = reader.next().await.unwrap().unwrap().len();
    setup.shorten("shrinks", 0);
    while let Some(piece) = reader.next().await.unwrap() {
        received += piece.len();
    }
    assert!(received < size);
    // Files of the kernel say that they are empty.
    let status = setup.files.read_all(Path::new("/proc/self/status"), 1 << 20).await.unwrap();
    assert!(status.starts_with(b"Name:"));
    setup.end().await;
}

#[tokio::test]
async fn pipes_and_devices_are_not_read() {
    let setup = Setup::new().await;
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, setup.path("pipe"), fifo, mode, 0).unwrap();
    setup.write("file", "x");
    for path in [setup.path("pipe"), "/dev/zero".into(), "/dev/null".into(), setup.path("")] {
        let error = setup.files.read_all(&path, 10).await.unwrap_err();
        assert_eq!(error.code(), Code::FileKindWrong, "{}", path.display());
    }
    assert_eq!(setup.files.read_all(&setup.path("file"), 10).await.unwrap(), b"x");
    setup.end().await;
}

#[tokio::test]
async fn watches_end_when_dropped() {
    let setup = Setup::new().await;
    for _ in 0..100 {
        drop(setup.files.watch(&setup.path(""), true).await.unwrap());
    }
    let mut watch = setup.files.watch(&setup.path(""), true).await.unwrap();
    setup.write("f", "x");
    assert!(watch.next().await.is_ok());
    setup.end().await;
}
