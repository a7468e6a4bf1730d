//! Archives that are made, and extracted again.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use belljar_engine::{ArchiveFormat, ArchiveReader, ExtractLimits, ExtractReport};

use crate::Setup;

const FORMATS: [ArchiveFormat; 3] = [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::Zip];

async fn whole(mut reader: ArchiveReader) -> Vec<u8> {
    let mut archive = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        assert!(piece.len() < 1 << 20, "pieces are small");
        archive.extend(piece);
    }
    archive
}

/// Bytes that no compression makes smaller.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(&mut next).take(size).collect()
}

fn fill(setup: &Setup) {
    setup.write("from/empty", "");
    setup.write("from/d/text", "text\n".repeat(1000));
    setup.write("from/d/noise", noise(300_000));
    setup.write(&format!("from/{}/{}", "long".repeat(30), "name".repeat(30)), "x");
    setup.write("from/ü/ñ", "utf-8");
    setup.write("from/run", "#!/bin/sh\n");
    setup.write("from/closed/f", "x");
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(setup.path(name), permissions).unwrap();
    };
    mode("from/run", 0o750);
    mode("from/empty", 0o604);
    mode("from/closed", 0o500);
    std::os::unix::fs::symlink("../run", setup.path("from/d/link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, setup.path("from/pipe"), fifo, mode, 0).unwrap();
}

#[tokio::test]
async fn what_is_archived_comes_out_again() {
    let setup = Setup::new().await;
    fill(&setup);
    for format in FORMATS {
        let mut reader = setup.files.archive(&setup.path("from"), format).await.unwrap();
        let mut archive = Vec::new();
        while let Some(piece) = reader.next().await.unwrap() {
            archive.extend(piece);
        }
        assert_eq!(reader.skipped(), 1, "the pipe");
        let to = setup.path(format.as_str());
        let limits = ExtractLimits::default();
        // Twice: what is there is replaced.
        for round in 0..2 {
            if round == 1 {
                let open = std::fs::Permissions::from_mode(0o700);
                std::fs::set_permissions(to.join("closed"), open).unwrap();
            }
            let report = setup.files.extract(&to, format, &archive[..], limits).await.unwrap();
            let directories = if round == 0 { 4 } else { 0 };
            let expected = ExtractReport { files: 7, directories, links: 1, bytes: 305_017 };
            assert_eq!(report, expected, "{format:?}");
            let closed = std::fs::metadata(to.join("closed")).unwrap().permissions().mode();
            // A directory that was there keeps its mode.
            assert_eq!(closed & 0o777, if round == 0 { 0o500 } else { 0o700 });
        }
        let mut expected = setup.tree("from");
        expected.retain(|name| name != "pipe");
        assert_eq!(setup.tree(format.as_str()), expected);
        for name in ["empty", "d/text", "d/noise", "ü/ñ", "run", "d"] {
            let (from, to) = (setup.path("from").join(name), to.join(name));
            let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(&from), mode(&to), "{name}");
            if from.is_file() {
                assert!(std::fs::read(from).unwrap() == std::fs::read(to).unwrap(), "{name}");
            }
        }
    }
    setup.end().await;
}

#[tokio::test]
async fn other_programs_read_our_tar_and_we_read_theirs() {
    let setup = Setup::new().await;
    fill(&setup);
    std::fs::remove_file(setup.path("from/pipe")).unwrap();
    let reader = setup.files.archive(&setup.path("from"), ArchiveFormat::TarGz).await.unwrap();
    std::fs::write(setup.path("ours.tgz"), whole(reader).await).unwrap();
    std::fs::create_dir(setup.path("theirs")).unwrap();
    let tar = |arguments: &[&str]| {
        let mut command = Command::new("tar");
        let status = command.args(arguments).current_dir(setup.path("")).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    tar(&["-xzf", "ours.tgz", "-C", "theirs"]);
    assert_eq!(setup.tree("theirs"), setup.tree("from"));
    std::fs::hard_link(setup.path("from/run"), setup.path("from/run-too")).unwrap();
    for format in ["gnu", "posix", "ustar"] {
        if format == "ustar" {
            // It has no room for such names.
            std::fs::remove_dir_all(setup.path("from").join("long".repeat(30))).unwrap();
        }
        tar(&["-czf", "theirs.tgz", &format!("--format={format}"), "-C", "from", "."]);
        let archive = std::fs::read(setup.path("theirs.tgz")).unwrap();
        let to = setup.path(format);
        let limits = ExtractLimits::default();
        setup.files.extract(&to, ArchiveFormat::TarGz, &archive[..], limits).await.unwrap();
        assert_eq!(setup.tree(format), setup.tree("from"), "{format}");
    }
    setup.end().await;
}

#[tokio::test]
async fn a_single_file_is_archived_under_its_name() {
    let setup = Setup::new().await;
    setup.write("d/file", "contents");
    for format in FORMATS {
        let reader = setup.files.archive(&setup.path("d/file"), format).await.unwrap();
        let archive = whole(reader).await;
        let to = setup.path(format.as_str());
        let limits = ExtractLimits::default();
        setup.files.extract(&to, format, &archive[..], limits).await.unwrap();
        assert_eq!(std::fs::read(to.join("file")).unwrap(), b"contents");
    }
    assert!(setup.files.archive(&setup.path("missing"), ArchiveFormat::Tar).await.is_err());
    setup.end().await;
}

#[tokio::test]
async fn files_that_change_meanwhile_do_not_break_the_archive() {
    let setup = Setup::new().await;
    for format in FORMATS {
        // More than is ever read ahead, so that the changes come while it is being read.
        let size = 2 << 20;
        let content = noise(size);
        setup.write("from/0-grows", &content);
        setup.write("from/1-shrinks", &content);
        setup.write("from/2-goes", "x");
        setup.write("from/3-stays", "stays");
        let mut reader = setup.files.archive(&setup.path("from"), format).await.unwrap();
        let mut archive = reader.next().await.unwrap().unwrap();
        setup.append("from/0-grows", &content);
        setup.shorten("from/1-shrinks", 1000);
        std::fs::remove_file(setup.path("from/2-goes")).unwrap();
        while let Some(piece) = reader.next().await.unwrap() {
            archive.extend(piece);
        }
        assert_eq!(reader.skipped(), 1);
        let to = setup.path(format.as_str());
        let limits = ExtractLimits::default();
        setup.files.extract(&to, format, &archive[..], limits).await.unwrap();
        assert!(std::fs::read(to.join("0-grows")).unwrap() == content);
        let shrunk = std::fs::read(to.join("1-shrinks")).unwrap();
        assert!(shrunk[..1000] == content[..1000]);
        assert!(shrunk[1000..].iter().all(|&byte| byte == 0));
        assert_eq!(shrunk.len(), if format == ArchiveFormat::Zip { 1000 } else { size });
        assert_eq!(std::fs::read(to.join("3-stays")).unwrap(), b"stays");
        assert!(!to.join("2-goes").exists());
    }
    setup.end().await;
}

#[tokio::test]
async fn trees_deeper_than_one_listing_are_whole() {
    let setup = Setup::new().await;
    let deep = format!("from/{}f", "d/".repeat(100));
    setup.write(&deep, "deep");
    let reader = setup.files.archive(&setup.path("from"), ArchiveFormat::Tar).await.unwrap();
    let archive = whole(reader).await;
    let to = setup.path("to");
    let limits = ExtractLimits::default();
    let report = setup.files.extract(&to, ArchiveFormat::Tar, &archive[..], limits).await.unwrap();
    assert_eq!((report.files, report.directories), (1, 100));
    assert_eq!(setup.tree("to"), setup.tree("from"));
    setup.end().await;
}
