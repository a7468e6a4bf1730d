use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_egress::{Approval, Approver, Asked, Identity, Reason};
use tokio::sync::Notify;

use crate::origin::{echo, is_cut, says};
use crate::world::{World, rules};

/// Answers what it was told to, when it is let.
#[derive(Default)]
struct Person {
    answers: Mutex<Vec<Approval>>,
    asked: Mutex<Vec<Asked>>,
    let_go: Notify,
}

#[async_trait]
impl Approver for Person {
    async fn ask(&self, _: &Identity, asked: &Asked) -> Approval {
        self.asked.lock().unwrap().push(asked.clone());
        let answer = self.answers.lock().unwrap().pop();
        match answer {
            Some(answer) => {
                self.let_go.notified().await;
                answer
            }
            None => std::future::pending().await,
        }
    }
}

async fn asking(answers: &[Approval], wait: Duration) -> (World, Arc<Person>) {
    let person = Arc::new(Person::default());
    person.answers.lock().unwrap().extend(answers.iter().rev());
    let mut rules = rules("network_allowlist: [good.example]");
    rules.ask = Some(wait);
    let world = World::with(rules, Arc::clone(&person) as Arc<dyn Approver>, Vec::new()).await;
    (world, person)
}

#[tokio::test]
async fn nothing_leaves_before_somebody_said_yes() {
    let wait = Duration::from_secs(10);
    let (world, person) = asking(&[Approval::Once, Approval::Sandbox], wait).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("new.example", &["127.0.0.2"]);
    let mut stream = world.reach("new.example", origin.port()).await;
    assert_eq!(world.upstream.asked(), [""; 0], "the name is resolved only after the answer");
    person.let_go.notify_one();
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    drop(stream);
    let record = world.records(1).await.remove(0);
    assert_eq!((record.reason, record.host.as_deref()), (Reason::Approved, Some("new.example")));
    assert_eq!(record.address, Some("127.0.0.2".parse().unwrap()), "where it really went");

    // Once is once.
    person.let_go.notify_one();
    let mut stream = world.reach("new.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    assert_eq!(person.asked.lock().unwrap().len(), 2);
    // For the sandbox is for all that come after it.
    let mut stream = world.reach("new.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    let asked = person.asked.lock().unwrap().clone();
    assert_eq!(
        (asked.len(), asked[0].host.as_str(), asked[0].port),
        (2, "new.example", origin.port())
    );

    world.gate.set_rules(rules("network_allowlist: [good.example]"));
    assert!(is_cut(&mut stream).await, "who no longer asks no longer grants");
}

#[tokio::test]
async fn no_answer_in_time_and_no_are_the_same() {
    let (world, person) = asking(&[Approval::Deny], Duration::from_millis(300)).await;
    world.upstream.set("new.example", &["127.0.0.2"]);
    person.let_go.notify_one();
    assert!(is_cut(&mut world.reach("new.example", 80).await).await);
    assert!(is_cut(&mut world.reach("late.example", 80).await).await);
    let records = world.records(2).await;
    assert!(records.iter().all(|record| record.reason == Reason::NotApproved), "{records:?}");
    assert_eq!(world.upstream.asked(), [""; 0]);
    // The same question is not put again and again.
    assert!(is_cut(&mut world.reach("new.example", 80).await).await);
    assert_eq!(person.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_is_withdrawn() {
    /// Says when it is no longer asked.
    struct Watched(tokio::sync::mpsc::UnboundedSender<&'static str>);
    struct Leaving(tokio::sync::mpsc::UnboundedSender<&'static str>);
    impl Drop for Leaving {
        fn drop(&mut self) {
            let _ = self.0.send("withdrawn");
        }
    }
    #[async_trait]
    impl Approver for Watched {
        async fn ask(&self, _: &Identity, _: &Asked) -> Approval {
            let _leaving = Leaving(self.0.clone());
            self.0.send("asked").unwrap();
            std::future::pending().await
        }
    }
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let mut rules = rules("network_allowlist: [good.example]");
    rules.ask = Some(Duration::from_secs(600));
    let world = World::with(rules, Arc::new(Watched(sender)), Vec::new()).await;
    let mut stream = world.reach("new.example", 80).await;
    let limit = crate::world::LIMIT;
    assert_eq!(tokio::time::timeout(limit, seen.recv()).await.unwrap(), Some("asked"));
    world.gate.close();
    assert!(is_cut(&mut stream).await);
    assert_eq!(tokio::time::timeout(limit, seen.recv()).await.unwrap(), Some("withdrawn"));
}
