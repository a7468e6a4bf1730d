//! Copies inside a sandbox.

use std::os::unix::fs::PermissionsExt;

use belljar_codes::Code;
use belljar_engine::{CopyOptions, CopyReport};

use crate::Setup;

const TREE: CopyOptions = CopyOptions { recursive: true, replace: false };
const OVER: CopyOptions = CopyOptions { recursive: true, replace: true };

#[tokio::test]
async fn a_tree_with_modes_and_links() {
    let setup = Setup::new().await;
    setup.write("a/d/f", vec![7; 500_000]);
    setup.write("a/run", "x");
    let executable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(setup.path("a/run"), executable).unwrap();
    std::fs::set_permissions(setup.path("a/d"), std::fs::Permissions::from_mode(0o555)).unwrap();
    std::os::unix::fs::symlink("/nowhere", setup.path("a/link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, setup.path("a/pipe"), fifo, mode, 0).unwrap();
    let report = setup.files.copy(&setup.path("a"), &setup.path("b"), TREE).await.unwrap();
    let expected = CopyReport {
        files: 2,
        directories: 2,
        links: 1,
        bytes: 500_001,
        skipped: 1,
        skipped_paths: vec![setup.path("a/pipe")],
    };
    assert_eq!(report, expected);
    assert_eq!(setup.tree("b"), ["d/", "d/f", "link -> /nowhere", "run"]);
    let mode = |name: &str| setup.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("b/run"), mode("b/d")), (0o711, 0o555));

    // What is there stays unless it may be replaced.
    let error = setup.files.copy(&setup.path("a"), &setup.path("b"), TREE).await.unwrap_err();
    assert_eq!(error.code(), Code::FileExists);
    std::fs::set_permissions(setup.path("b/d"), std::fs::Permissions::from_mode(0o755)).unwrap();
    setup.write("b/extra", "kept");
    setup.write("a/run", "new");
    setup.files.copy(&setup.path("a"), &setup.path("b"), OVER).await.unwrap();
    assert_eq!(setup.tree("b"), ["d/", "d/f", "extra", "link -> /nowhere", "run"]);
    assert_eq!(std::fs::read(setup.path("b/run")).unwrap(), b"new");
    setup.end().await;
}

#[tokio::test]
async fn single_files() {
    let setup = Setup::new().await;
    setup.write("f", "one");
    setup.write("g", "two");
    let plain = CopyOptions::default();
    let replace = CopyOptions { replace: true, ..plain };
    let copy = |from: &str, to: &str, options| {
        let (files, from, to) = (setup.files.clone(), setup.path(from), setup.path(to));
        async move { files.copy(&from, &to, options).await.map_err(|error| error.code()) }
    };
    assert_eq!(copy("f", "h", plain).await.unwrap().bytes, 3);
    assert_eq!(copy("f", "g", plain).await, Err(Code::FileExists));
    assert_eq!(std::fs::read(setup.path("g")).unwrap(), b"two");
    assert_eq!(copy("f", "g", replace).await.unwrap().files, 1);
    assert_eq!(std::fs::read(setup.path("g")).unwrap(), b"one");
    assert_eq!(copy("missing", "x", plain).await, Err(Code::FileNotFound));
    assert_eq!(copy("f", "no/such", plain).await, Err(Code::FileNotFound));
    assert_eq!(copy("", "x", plain).await, Err(Code::FileKindWrong));
    assert_eq!(setup.tree(""), ["f", "g", "h"]);
    setup.end().await;
}

#[tokio::test]
async fn a_directory_is_not_copied_into_itself() {
    let setup = Setup::new().await;
    setup.write("a/f", "x");
    std::os::unix::fs::symlink("a", setup.path("way-in")).unwrap();
    for to in ["a", "a/b", "way-in/b"] {
        let error = setup.files.copy(&setup.path("a"), &setup.path(to), OVER).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{to}");
    }
    assert_eq!(setup.tree("a"), ["f"]);
    setup.files.copy(&setup.path("a"), &setup.path("ab"), OVER).await.unwrap();
    assert_eq!(setup.tree("ab"), ["f"]);
    setup.end().await;
}
