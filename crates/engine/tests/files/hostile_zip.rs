//! Zip archives that want more than to be extracted.

use belljar_codes::Code;
use belljar_engine::{ArchiveFormat, ExtractLimits};

use crate::Setup;
use crate::raw::{ZipEntry, deflated, stored, with_long_end, zip, zip_link};

async fn refusal(setup: &Setup, name: &str, archive: &[u8]) -> Option<String> {
    let limits = ExtractLimits { entries: 100, bytes: 64 << 20, ..ExtractLimits::default() };
    match setup.files.extract(&setup.path(name), ArchiveFormat::Zip, archive, limits).await {
        Ok(_) => None,
        Err(error) => {
            assert_eq!(error.code(), Code::ArchiveRefused, "{name}: {error}");
            Some(error.to_string())
        }
    }
}

fn mode(entry: ZipEntry, mode: u32) -> ZipEntry {
    ZipEntry { mode, ..entry }
}

#[tokio::test]
async fn tricks_are_refused_and_their_harmless_twins_are_not() {
    let setup = Setup::new().await;
    std::fs::write(setup.path("victim"), "untouched").unwrap();
    let f = || stored("f", b"x");
    let other_name = [&[0x75, 0x70, 6, 0, 1, 0, 0, 0, 0][..], b"g"].concat();
    let same_name = [&[0x75, 0x70, 6, 0, 1, 0, 0, 0, 0][..], b"f"].concat();
    let long = [&[1, 0, 8, 0][..], &1u64.to_le_bytes()].concat();
    let directory = || mode(stored("d/", b""), 0o040_755);
    let bomb = deflated("zeros", &vec![0; 32 << 20]);
    let cases: Vec<(&str, Vec<ZipEntry>, Option<&str>)> = vec![
        ("nothing", vec![], None),
        ("stored", vec![f()], None),
        ("deflated", vec![deflated("a/b", b"contents")], None),
        ("directory", vec![directory(), stored("d/f", b"x")], None),
        ("up", vec![stored("../victim", b"x")], Some("`..`")),
        ("up inside", vec![stored("a/../../victim", b"x")], Some("`..`")),
        ("backslash", vec![stored("..\\victim", b"x")], Some("backslash")),
        ("absolute", vec![stored("/tmp/victim", b"x")], Some("absolute")),
        ("nul", vec![stored("f\0g", b"x")], Some("NUL")),
        ("twice", vec![f(), f()], Some("twice")),
        ("link inside", vec![f(), zip_link("l", "f")], None),
        ("link up", vec![zip_link("l", "../victim")], Some("leaves")),
        ("link absolute", vec![zip_link("l", "/etc/passwd")], Some("absolute")),
        ("link long", vec![zip_link("l", &"x".repeat(2000))], Some("nowhere")),
        ("through a link", vec![zip_link("l", "d"), stored("l/f", b"x")], Some("through")),
        ("other case", vec![zip_link("l", "d"), stored("L/f", b"x")], Some("through")),
        ("device", vec![mode(f(), 0o020_666)], Some("device")),
        ("block device", vec![mode(f(), 0o060_666)], Some("device")),
        ("pipe", vec![mode(f(), 0o010_666)], Some("pipe")),
        ("socket", vec![mode(f(), 0o140_666)], Some("kind")),
        ("no mode", vec![mode(f(), 0)], None),
        ("slash", vec![mode(stored("d/", b""), 0o100_644)], Some("directory's name")),
        ("no slash", vec![mode(stored("d", b""), 0o040_755)], Some("directory's name")),
        ("directory contents", vec![mode(stored("d/", b"x"), 0o040_755)], Some("contradictory")),
        ("encrypted", vec![ZipEntry { flags: 1, ..f() }], Some("encrypted")),
        ("method", vec![ZipEntry { method: 12, ..f() }], Some("unknown way")),
        ("two names", vec![ZipEntry { local_name: Some(b"g".into()), ..f() }], Some("differ")),
        ("unicode name", vec![ZipEntry { extra: other_name, ..f() }], Some("two different names")),
        ("same name", vec![ZipEntry { extra: same_name, ..f() }], None),
        ("long sizes", vec![ZipEntry { extra: long.repeat(2), ..f() }], Some("two different")),
        ("unused sizes", vec![ZipEntry { extra: long, ..f() }], None),
        ("cut extra", vec![ZipEntry { extra: vec![1, 0, 99, 0], ..f() }], Some("malformed extra")),
        ("no long size", vec![ZipEntry { size: u32::MAX, ..deflated("f", b"x") }], Some("size")),
        ("size", vec![ZipEntry { size: 2, ..f() }], Some("contradictory")),
        ("less", vec![ZipEntry { size: 1, ..deflated("f", b"xyz") }], Some("more contents")),
        ("more", vec![ZipEntry { size: 9, ..deflated("f", b"xyz") }], Some("other contents")),
        ("checksum", vec![ZipEntry { crc: 1, ..f() }], Some("other contents")),
        ("noise", vec![ZipEntry { data: vec![0xff; 9], ..deflated("f", b"x") }], Some("contents")),
        ("overlap", vec![f(), ZipEntry { offset: Some(0), ..f() }], Some("overlaps")),
        ("outside", vec![ZipEntry { offset: Some(1 << 30), ..f() }], Some("outside")),
        ("bomb", vec![bomb], Some("200 times")),
    ];
    for (name, entries, expected) in cases {
        let found = refusal(&setup, &format!("target/{name}"), &zip(&entries)).await;
        match (expected, &found) {
            (None, None) => {}
            (Some(text), Some(found)) if found.contains(text) => {}
            _ => panic!("{name}: expected {expected:?}, found {found:?}"),
        }
    }
    assert_eq!(std::fs::read(setup.path("victim")).unwrap(), b"untouched");
    assert_eq!(std::fs::read_dir(setup.path("")).unwrap().count(), 2);
    setup.end().await;
}

#[tokio::test]
async fn a_refused_header_leaves_nothing_at_all() {
    let setup = Setup::new().await;
    let archive = zip(&[stored("good", b"x"), stored("../bad", b"x")]);
    assert!(refusal(&setup, "t", &archive).await.is_some());
    assert!(!setup.path("t").exists());
    assert_eq!(refusal(&setup, "t", &zip(&[stored("good", b"x")])).await, None);
    assert_eq!(setup.tree("t"), ["good"]);
    // What was received is on no disk any more.
    let trash = setup.directory.path().join("state/trash");
    assert_eq!(std::fs::read_dir(trash).unwrap().count(), 0);
    setup.end().await;
}

#[tokio::test]
async fn ends_that_can_be_read_in_two_ways_are_refused() {
    let setup = Setup::new().await;
    let plain = || zip(&[stored("f", b"x")]);
    let end = plain().len() - 22;
    let change = |at: usize, bytes: &[u8]| {
        let mut archive = plain();
        archive[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        archive
    };
    let mut comment = change(20, &[3, 0]);
    comment.extend(b"abc");
    // The comment is itself the end of an empty archive.
    let mut two_ends = change(20, &[22, 0]);
    two_ends.extend(zip(&[]));
    let mut hidden = plain();
    hidden.splice(end..end, *b"hidden");
    let mut prefixed = b"#!/bin/sh\n".to_vec();
    prefixed.extend(plain());
    for (name, archive, refused) in [
        ("plain", plain(), false),
        ("comment", comment, false),
        ("two ends", two_ends, true),
        ("hidden", hidden, true),
        ("in front", prefixed, true),
        ("behind", [plain(), vec![0]].concat(), true),
        ("cut", plain()[..end + 10].to_vec(), true),
        ("nothing", Vec::new(), true),
        ("noise", b"noise".repeat(100), true),
        ("fewer entries", change(8, &[0, 0, 0, 0]), true),
        ("more entries", change(8, &[2, 0, 2, 0]), true),
        ("parts", change(4, &[1, 0]), true),
        ("far away", change(16, &[0xff, 0xff, 0xff, 0x7f]), true),
        ("no long form", change(16, &[0xff; 4]), true),
        ("long form", with_long_end(&plain(), 1), false),
        ("long form needed", with_long_end(&change(8, &[0xff; 4]), 1), false),
        ("long form differs", with_long_end(&plain(), 0), true),
    ] {
        let found = refusal(&setup, &format!("t/{name}"), &archive).await;
        assert_eq!(found.is_some(), refused, "{name}: {found:?}");
    }
    setup.end().await;
}

#[tokio::test]
async fn damaged_archives_end_in_an_answer() {
    use crate::raw::Tar;
    let setup = Setup::new().await;
    let content = b"some contents, some contents";
    let zipped = zip(&[deflated("a/f", content), zip_link("l", "a"), stored("g", content)]);
    let tarred = Tar::default().file("a/f", "contents").link("l", "a").end();
    let limits =
        ExtractLimits { entries: 100, bytes: 1 << 20, entry_bytes: 1 << 20, ..Default::default() };
    // The same damage every time.
    let mut state = 7u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for round in 0..400 {
        let (format, whole) = match round % 2 {
            0 => (ArchiveFormat::Zip, &zipped),
            _ => (ArchiveFormat::Tar, &tarred),
        };
        let mut archive = whole.clone();
        let at = random(archive.len());
        archive[at] = random(256) as u8;
        if random(4) == 0 {
            archive.truncate(random(archive.len()));
        }
        let extracted = setup.files.extract(&setup.path("t"), format, &archive[..], limits).await;
        if let Err(error) = extracted {
            let known = [Code::ArchiveRefused, Code::FileKindWrong, Code::FileExists];
            assert!(known.contains(&error.code()), "{round}: {error:?}");
        }
        // Whatever was extracted is below the target.
        assert!(setup.tree("").iter().all(|name| name.starts_with("t/")));
        let _ = std::fs::remove_dir_all(setup.path("t"));
    }
    setup.end().await;
}
