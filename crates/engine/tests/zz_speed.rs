mod support;
use belljar_engine::{CreateRequest, SessionRequest};
use std::time::Instant;
use support::{Setup, exec};
#[tokio::test]
async fn speed() {
    let setup = {
        let directory = tempfile::tempdir().unwrap();
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let backend = support::FakeBackend::new(&shm.path().join("objects"));
        std::mem::forget(shm);
        let engine = support::open(&directory.path().join("state"), &backend).await;
        Setup { directory, backend, engine }
    };
    let mut times = vec![];
    let mut c = vec![];
    let mut e = vec![];
    let mut d = vec![];
    for _ in 0..400 {
        let t = Instant::now();
        let s = setup
            .engine
            .session(SessionRequest::Ephemeral(CreateRequest::default()))
            .await
            .unwrap();
        let t1 = Instant::now();
        let mut r = exec(&["true"]);
        r.keep_output = false;
        let p = setup.engine.exec(&s.sandbox.id, r).await.unwrap();
        p.wait().await.unwrap();
        let t2 = Instant::now();
        s.end().await.unwrap();
        let t3 = Instant::now();
        times.push(t3 - t);
        c.push(t1 - t);
        e.push(t2 - t1);
        d.push(t3 - t2);
    }
    for v in [&mut times, &mut c, &mut e, &mut d] {
        v.sort();
        eprintln!("p50 {:?} p95 {:?} p99 {:?}", v[200], v[380], v[396]);
    }
    let t = Instant::now();
    let eng = setup.second().await;
    eprintln!("open {:?}", t.elapsed());
    let t = Instant::now();
    eng.close().await;
    eprintln!("close {:?}", t.elapsed());
}
