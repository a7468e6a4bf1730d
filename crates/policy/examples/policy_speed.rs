//! How long documents take to read and questions to answer, in time on a CPU, so that other work on the machine counts
//! little. Not a test: `cargo run --release -p belljar-policy --example policy_speed`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::time::Duration;

use belljar_policy::document::{Context, Document, Format, Policy};

const RUNS: usize = 30;

fn main() {
    let yaml = rules(10_000);
    let document = Document::parse(&yaml, Format::Yaml).unwrap();
    let json = serde_json::to_string(&document).unwrap();
    let show = |what: &str, times: Vec<Duration>| {
        println!("{what}: best {:?}, median {:?}", times[0], times[times.len() / 2]);
    };
    println!("10,000 rules: {} bytes of YAML, {} of JSON", yaml.len(), json.len());
    show("read YAML", timed(RUNS, || Document::parse(&yaml, Format::Yaml).unwrap()));
    show("read JSON", timed(RUNS, || Document::parse(&json, Format::Json).unwrap()));
    show("compile", timed(RUNS, || Policy::new(&document)));

    let thousand = Policy::new(&Document::parse(&rules(1000), Format::Yaml).unwrap());
    let context = (0..20).fold(Context::new(), |context, n| {
        context.with(format!("field_{n}"), format!("value that no rule of {n} names"))
    });
    show("decide over 1,000 rules, none matches", timed(20_000, || thousand.decide(&context)));
}

/// The kinds of rules that documents have: names, lists, limits, and one pattern in ten.
fn rules(count: usize) -> String {
    let mut yaml = String::from("name: large\nrules:\n");
    for n in 0..count {
        let (operator, value) = match n % 10 {
            0..=3 => ("eq", format!("tool_{n}")),
            4..=6 => ("in", format!("[tool_{n}, other_{n}]")),
            7 => ("contains", format!("part_{n}")),
            8 => ("eq", n.to_string()),
            _ => ("matches", format!("'^rm {n} .*$'")),
        };
        write!(
            yaml,
            "  - name: rule-{n}\n    condition: {{field: field_{}, operator: {operator}, value: {value}}}\n    \
             action: deny\n    priority: {}\n",
            n % 20,
            n % 100
        )
        .unwrap();
    }
    yaml
}

fn timed<T>(runs: usize, mut work: impl FnMut() -> T) -> Vec<Duration> {
    // The clock of the scheduler costs more than a decision takes, so several are timed together.
    let batch = if runs > RUNS { 2000 } else { 1 };
    let mut times: Vec<Duration> = (0..runs / batch)
        .map(|_| {
            let start = on_cpu();
            for _ in 0..batch {
                std::hint::black_box(work());
            }
            (on_cpu() - start) / u32::try_from(batch).unwrap()
        })
        .collect();
    times.sort();
    times
}

/// How long this thread has been on a CPU.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
