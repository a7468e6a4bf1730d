//! Tar archives that want more than to be extracted.

use belljar_codes::Code;
use belljar_engine::{ArchiveFormat, ExtractLimits};

use crate::Setup;
use crate::raw::{Tar, header};

/// Extracts and returns the refusal; `None` if there was none. Nothing may appear beside the target either way.
async fn refusal(setup: &Setup, name: &str, archive: &[u8]) -> Option<String> {
    let target = setup.path(name);
    let limits = ExtractLimits { entries: 100, bytes: 1 << 20, ..ExtractLimits::default() };
    match setup.files.extract(&target, ArchiveFormat::Tar, archive, limits).await {
        Ok(_) => None,
        Err(error) => {
            assert_eq!(error.code(), Code::ArchiveRefused, "{name}: {error}");
            Some(error.to_string())
        }
    }
}

fn pax(records: &[&str]) -> Tar {
    extended(b'x', records)
}

fn extended(kind: u8, records: &[&str]) -> Tar {
    Tar::default().entry(kind, "PaxHeader", "", records.concat().as_bytes())
}

#[tokio::test]
async fn tricks_are_refused_and_their_harmless_twins_are_not() {
    let setup = Setup::new().await;
    std::fs::write(setup.path("victim"), "untouched").unwrap();
    let long = "n".repeat(300);
    let long_record = format!("{} path={long}\n", 300 + 10);
    let tar = Tar::default;
    let cases: Vec<(&str, Tar, Option<&str>)> = vec![
        ("file", tar().file("f", "x"), None),
        ("nested", tar().file("a/b/c", "x"), None),
        ("dot", tar().directory("./").file("./f", "x"), None),
        ("up", tar().file("../victim", "x"), Some("`..`")),
        ("up inside", tar().file("a/../../victim", "x"), Some("`..`")),
        ("absolute", tar().file("/tmp/victim", "x"), Some("absolute")),
        ("link inside", tar().file("d/f", "x").link("d/l", "../d/f"), None),
        ("link up", tar().link("l", "../victim"), Some("leaves")),
        ("link absolute", tar().link("l", "/etc/passwd"), Some("absolute")),
        ("link and up", tar().link("l", "d/../../victim"), Some("`..` behind")),
        ("through a link", tar().directory("d").link("l", "d").file("l/f", "x"), Some("through")),
        ("other case", tar().directory("d").link("l", "d").file("L/f", "x"), Some("through")),
        ("over a link", tar().link("l", "f").file("l", "x"), Some("name of a link")),
        ("twice", tar().file("f", "x").file("f", "y"), Some("twice")),
        ("file as directory", tar().file("f", "x").file("f/g", "y"), Some("not a directory")),
        ("hard link", tar().file("f", "x").entry(b'1', "g", "f", b""), None),
        ("hard link out", tar().entry(b'1', "g", "../victim", b""), Some("no entry before")),
        ("hard link absolute", tar().entry(b'1', "g", "/etc/passwd", b""), Some("no entry before")),
        (
            "hard link to link",
            tar().link("l", "f").entry(b'1', "g", "l", b""),
            Some("no entry before"),
        ),
        ("character device", tar().entry(b'3', "null", "", b""), Some("device")),
        ("block device", tar().entry(b'4', "sda", "", b""), Some("device")),
        ("pipe", tar().entry(b'6', "p", "", b""), Some("pipe")),
        ("sparse", tar().entry(b'S', "s", "", b""), Some("sparse")),
        ("volume", tar().entry(b'V', "v", "", b""), Some("kind")),
        ("directory contents", tar().entry(b'5', "d", "", b"x"), Some("contents")),
        ("file with slash", tar().file("f/", "x"), Some("directory's name")),
        ("empty name", tar().file("", "x"), Some("no name")),
        ("pax name", pax(&["10 path=p\n"]).file("f", "x"), None),
        ("pax up", pax(&["18 path=../victim\n"]).file("f", "x"), Some("`..`")),
        ("pax twice", pax(&["10 path=p\n", "10 path=q\n"]).file("f", "x"), Some("contradictory")),
        ("pax long", pax(&[&long_record]).file("f", "x"), Some("too long")),
        ("pax sizes", pax(&["10 size=0\n"]).file("f", "x"), Some("two different sizes")),
        ("pax same size", pax(&["10 size=1\n"]).file("f", "x"), None),
        ("pax huge", pax(&["19 size=9999999999\n"]).file("f", ""), Some("bytes")),
        ("pax sparse", pax(&["22 GNU.sparse.major=1\n"]).file("f", "x"), Some("sparse")),
        ("pax alone", pax(&["10 path=p\n"]), Some("middle")),
        ("global", extended(b'g', &["15 comment=abc\n"]).file("f", "x"), None),
        ("global name", extended(b'g', &["10 path=p\n"]).file("f", "x"), Some("contradictory")),
        ("long name", tar().entry(b'L', "@", "", b"g\0").file("f", "x"), None),
        ("long up", tar().entry(b'L', "@", "", b"../victim\0").file("f", "x"), Some("`..`")),
        ("long nul", tar().entry(b'L', "@", "", b"a\0b\0").file("f", "x"), Some("malformed")),
        (
            "long twice",
            tar().entry(b'L', "@", "", b"a\0").entry(b'L', "@", "", b"b\0").file("f", "x"),
            Some("contradictory"),
        ),
        (
            "long and pax",
            Tar([pax(&["10 path=p\n"]).0, tar().entry(b'L', "@", "", b"a\0").0].concat())
                .file("f", "x"),
            Some("contradictory"),
        ),
        ("long huge", tar().header(header(b'L', "@", "", 1 << 30)), Some("too much")),
        ("long link", tar().entry(b'K', "@", "", b"../../victim\0").link("l", "x"), Some("leaves")),
        ("huge", tar().header(header(b'0', "f", "", 2 << 20)), Some("more than 1048576 bytes")),
        ("short", tar().header(header(b'0', "f", "", 4096)), Some("middle")),
    ];
    let count = cases.len();
    for (name, archive, expected) in cases {
        let found = refusal(&setup, &format!("target/{name}"), &archive.end()).await;
        match (expected, &found) {
            (None, None) => {}
            (Some(text), Some(found)) if found.contains(text) => {}
            _ => panic!("{name}: expected {expected:?}, found {found:?}"),
        }
    }
    assert!(count > 40);
    assert_eq!(std::fs::read(setup.path("victim")).unwrap(), b"untouched");
    assert_eq!(
        std::fs::read_dir(setup.path("")).unwrap().count(),
        2,
        "the victim and the directory of targets"
    );
    setup.end().await;
}

#[tokio::test]
async fn headers_that_can_be_read_in_two_ways_are_refused() {
    let setup = Setup::new().await;
    let change = |at: usize, bytes: &[u8]| {
        let mut header = header(b'0', "f", "", 1);
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Tar::default().header(header).content(b"x").end()
    };
    let mut checksum = Tar::default().file("f", "x").end();
    checksum[0] = b'g';
    let behind = [Tar::default().file("f", "x").end(), Tar::default().file("g", "x").end()];
    let mut cut = Tar::default().file("f", "x").0;
    cut.truncate(700);
    for (name, archive, refused) in [
        ("plain", change(0, b"f"), false),
        ("ends early", Tar::default().file("f", "x").0, true),
        ("cut", cut, true),
        ("nothing", Vec::new(), true),
        ("noise", b"noise".repeat(500), true),
        ("zeros", vec![0; 1024], false),
        ("checksum", checksum, true),
        ("behind the end", behind.concat(), true),
        ("behind a name", change(0, b"f\0g"), true),
        ("magic", change(257, b"ustax"), true),
        ("negative size", change(124, &[0xff; 12]), true),
        ("size with letters", change(124, b"00000000z01"), true),
        ("binary size", change(124, &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), false),
        ("prefix", change(345, b"../up"), true),
        ("good prefix", change(345, b"down"), false),
    ] {
        let found = refusal(&setup, &format!("t/{name}"), &archive).await;
        assert_eq!(found.is_some(), refused, "{name}: {found:?}");
    }
    setup.end().await;
}

#[tokio::test]
async fn links_that_wait_inside_are_not_followed() {
    let setup = Setup::new().await;
    setup.write("outside/kept", "kept");
    std::fs::create_dir(setup.path("t")).unwrap();
    std::os::unix::fs::symlink(setup.path("outside"), setup.path("t/d")).unwrap();
    std::os::unix::fs::symlink(setup.path("outside/kept"), setup.path("t/f")).unwrap();
    let through = Tar::default().file("d/new", "x").end();
    let found = refusal(&setup, "t", &through).await.unwrap();
    assert!(found.contains("through the link"), "{found}");
    // A link in the place of a file gives way to the file.
    assert_eq!(refusal(&setup, "t", &Tar::default().file("f", "new").end()).await, None);
    assert_eq!(std::fs::read(setup.path("t/f")).unwrap(), b"new");
    assert_eq!(std::fs::read(setup.path("outside/kept")).unwrap(), b"kept");
    assert_eq!(setup.tree("outside"), ["kept"]);
    setup.end().await;
}

#[tokio::test]
async fn bombs_stop_at_their_limit() {
    use std::io::Write;
    let setup = Setup::new().await;
    let gzip = |content: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let zeros = Tar::default().entry(b'0', "zeros", "", &vec![0; 32 << 20]).end();
    let bomb = gzip(&zeros);
    assert!(bomb.len() < 100_000);
    let limits = ExtractLimits::default();
    let extract = |name: &str, format, archive: Vec<u8>, limits| {
        let (files, target) = (setup.files.clone(), setup.path(name));
        async move { files.extract(&target, format, &archive[..], limits).await }
    };
    let error = extract("ratio", ArchiveFormat::TarGz, bomb.clone(), limits).await.unwrap_err();
    assert_eq!(error.code(), Code::ArchiveRefused);
    assert!(error.to_string().contains("200 times"), "{error}");
    // Nothing half-written stays, and the same bytes are fine where they are allowed.
    crate::eventually(|| setup.tree("ratio").is_empty()).await;
    let generous = ExtractLimits { ratio: 2000, ..limits };
    extract("allowed", ArchiveFormat::TarGz, bomb.clone(), generous).await.unwrap();
    let few = ExtractLimits { bytes: 1 << 20, ratio: 2000, ..limits };
    let error = extract("bytes", ArchiveFormat::TarGz, bomb.clone(), few).await.unwrap_err();
    assert_eq!(error.code(), Code::ArchiveRefused);
    let small = ExtractLimits { archive_bytes: 1000, ..limits };
    for format in [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::Zip] {
        let error = extract("archive", format, bomb.repeat(2), small).await.unwrap_err();
        assert_eq!(error.code(), Code::ArchiveRefused, "{format:?}");
    }
    let many = (0..50).fold(Tar::default(), |tar, number| tar.file(&format!("{number}/f"), ""));
    let entries = ExtractLimits { entries: 99, ..limits };
    let error = extract("many", ArchiveFormat::Tar, many.end(), entries).await.unwrap_err();
    assert!(error.to_string().contains("99 entries"), "{error}");
    // Headers that are no entries count too.
    let notes = (0..200).fold(Tar::default(), |tar, _| {
        tar.entry(b'g', "g", "", b"15 comment=abc\n").directory("d")
    });
    let error = extract("notes", ArchiveFormat::Tar, notes.end(), entries).await.unwrap_err();
    assert_eq!(error.code(), Code::ArchiveRefused);
    let mut cut = gzip(&Tar::default().file("f", "x").end());
    let whole = extract("whole", ArchiveFormat::TarGz, cut.clone(), limits).await;
    assert_eq!(whole.unwrap().files, 1);
    cut.truncate(cut.len() - 6);
    let error = extract("cut", ArchiveFormat::TarGz, cut, limits).await.unwrap_err();
    assert_eq!(error.code(), Code::ArchiveRefused);
    setup.end().await;
}
