//! Searches by name and content.

use std::path::PathBuf;

use belljar_codes::Code;
use belljar_engine::{FileKind, SearchHit, SearchRequest};

use crate::Setup;

async fn search(setup: &Setup, request: SearchRequest) -> (Vec<SearchHit>, bool) {
    let mut search = setup.files.search(&request).await.unwrap();
    let mut hits = Vec::new();
    while let Some(hit) = search.next().await.unwrap() {
        hits.push(hit);
    }
    assert_eq!(search.next().await.unwrap(), None);
    (hits, search.is_truncated())
}

async fn names(setup: &Setup, request: SearchRequest) -> Vec<String> {
    let root = setup.path("");
    let shown = |path: PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
    let (hits, _) = search(setup, request).await;
    hits.into_iter()
        .map(|hit| match (hit.line, hit.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", shown(hit.path)),
            _ => shown(hit.path),
        })
        .collect()
}

#[tokio::test]
async fn finds_names_and_lines() {
    let setup = Setup::new().await;
    setup.write("src/main.rs", "fn main() {\n    println!(\"Hello\");\n}\n");
    setup.write("src/deep/lib.rs", "// hello\nfn hello() {}");
    setup.write("notes.txt", "hello\r\nHELLO\r\n");
    setup.write("binary", b"hello\0hello");
    setup.write("large", "hello\n".repeat(1000));
    std::os::unix::fs::symlink("src", setup.path("link")).unwrap();
    let base = SearchRequest { path: setup.path(""), ..SearchRequest::default() };
    let with = |name: Option<&str>, content: Option<&str>| SearchRequest {
        name: name.map(str::to_owned),
        content: content.map(str::to_owned),
        max_file_size: Some(5000),
        ..base.clone()
    };
    let rs = with(Some("*.rs"), None);
    assert_eq!(names(&setup, rs.clone()).await, ["src/deep/lib.rs", "src/main.rs"]);
    let shallow = SearchRequest { max_depth: Some(2), ..rs };
    assert_eq!(names(&setup, shallow).await, ["src/main.rs"]);
    assert_eq!(names(&setup, with(Some("src/*"), None)).await, ["src/deep", "src/main.rs"]);
    let hello = with(None, Some("hello"));
    let expected = ["notes.txt:1:1", "src/deep/lib.rs:1:4", "src/deep/lib.rs:2:4"];
    assert_eq!(names(&setup, hello.clone()).await, expected);
    let any_case = SearchRequest { case_insensitive: true, ..hello.clone() };
    assert_eq!(names(&setup, any_case).await.len(), 5);
    let regex = SearchRequest { regex: true, ..with(Some("*.rs"), Some(r"^fn \w+\(")) };
    assert_eq!(names(&setup, regex).await, ["src/deep/lib.rs:2:1", "src/main.rs:1:1"]);
    let few = SearchRequest { max_results: Some(2), ..hello.clone() };
    let (hits, truncated) = search(&setup, few).await;
    assert_eq!((hits.len(), truncated), (2, true));
    assert_eq!(hits[0].text.as_deref(), Some("hello"));
    assert_eq!((hits[0].kind, hits[0].size), (FileKind::File, 14));
    let all = SearchRequest { max_results: Some(3), ..hello.clone() };
    assert!(!search(&setup, all).await.1);
    // One file, and all of it.
    let single = SearchRequest { path: setup.path("large"), max_file_size: None, ..hello };
    assert_eq!(search(&setup, single).await.0.len(), 1000);
    setup.end().await;
}

#[tokio::test]
async fn what_cannot_be_searched() {
    let setup = Setup::new().await;
    let base = SearchRequest { path: setup.path(""), ..SearchRequest::default() };
    let missing = SearchRequest { path: setup.path("missing"), ..base.clone() };
    assert_eq!(setup.files.search(&missing).await.unwrap_err().code(), Code::FileNotFound);
    let pattern = SearchRequest { content: Some("(".into()), regex: true, ..base.clone() };
    assert_eq!(setup.files.search(&pattern).await.unwrap_err().code(), Code::InvalidArgument);
    let literal = SearchRequest { regex: false, ..pattern };
    assert!(setup.files.search(&literal).await.is_ok());
    setup.end().await;
}

#[tokio::test]
async fn many_abandoned_searches_leave_nothing_running() {
    let setup = Setup::new().await;
    setup.write("large", "line with needle\n".repeat(500_000));
    let request = SearchRequest {
        path: setup.path(""),
        content: Some("needle".into()),
        ..SearchRequest::default()
    };
    // More than the agent does at once: each must have ended.
    for _ in 0..100 {
        let mut search = setup.files.search(&request).await.unwrap();
        assert!(search.next().await.unwrap().is_some());
    }
    setup.end().await;
}
