//! The tables as a profile for container engines and runtimes, which install it before the agent runs.
//!
//! It is the outer wall: it lets through whatever [`super::shared`] does, and a little more where its language cannot say it
//! exactly. The agent's own filter is in force below it and is exact.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Entry, When, allowed, names, refused, with_agent};

const ENOSYS: u32 = 38;
const EPERM: u32 = 1;
/// Arguments are compared by their low half, as the tables mean it.
const LOW_HALF: u64 = 0xFFFF_FFFF;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

/// What the agent does before it goes behind its own filter, which keeps everybody from it from then on.
const EARLY: [Entry; 1] = [(
    libc::SYS_socket,
    When::Equal(&[(0, libc::AF_NETLINK as u64), (2, libc::NETLINK_SOCK_DIAG as u64)]),
    "the table of sockets: which process made a connection",
)];

/// The profile in the language of the OCI runtime specification, which engines understand too.
#[must_use]
pub fn profile() -> Value {
    let mut always = Vec::new();
    let mut rules = Vec::new();
    let allowed: Vec<Entry> = with_agent(allowed::TABLE).into_iter().chain(EARLY).collect();
    for (number, whens) in by_number(&allowed) {
        let Some(name) = names::name(number) else { continue };
        let refusals = refused::TABLE.iter().filter(|(other, ..)| *other == number);
        let refusals: Vec<When> = refusals.map(|(_, when, _)| *when).collect();
        match conditions(&whens, &refusals) {
            Some(alternatives) => {
                rules.extend(alternatives.into_iter().map(|conditions| {
                    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": conditions })
                }));
            }
            None => always.push(name),
        }
    }
    let denied: Vec<&str> = by_number(refused::TABLE)
        .into_iter()
        .filter(|(_, whens)| whens.iter().any(|when| matches!(when, When::Always)))
        .filter_map(|(number, _)| names::name(number))
        .collect();
    rules.push(json!({ "names": always, "action": "SCMP_ACT_ALLOW" }));
    rules.push(json!({ "names": denied, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM }));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
}

fn by_number(table: &[Entry]) -> BTreeMap<i64, Vec<When>> {
    let mut whens: BTreeMap<i64, Vec<When>> = BTreeMap::new();
    for (number, when, _) in table {
        whens.entry(*number).or_default().push(*when);
    }
    whens
}

/// When a call is let through: any of the alternatives, each a list of conditions that all hold. `None`: always.
fn conditions(allowed: &[When], refused: &[When]) -> Option<Vec<Vec<Value>>> {
    let equal = |pairs: &[(u8, u64)]| -> Vec<Value> {
        pairs.iter().map(|&(index, value)| masked(index, LOW_HALF, value & LOW_HALF)).collect()
    };
    let alternatives: Vec<Vec<Value>> = allowed
        .iter()
        .filter_map(|when| match when {
            When::Equal(pairs) => Some(equal(pairs)),
            _ => None,
        })
        .collect();
    if !alternatives.is_empty() {
        return Some(alternatives);
    }
    let flags: Vec<(u8, u32)> = refused
        .iter()
        .filter_map(|when| match when {
            When::Flag { index, flag } => Some((*index, *flag)),
            _ => None,
        })
        .collect();
    if let Some((index, _)) = flags.first() {
        let mask = flags.iter().fold(0, |mask, (_, flag)| mask | u64::from(*flag));
        return Some(vec![vec![masked(*index, mask, 0)]]);
    }
    // What is refused unless it is one of these is allowed if it is one of these.
    refused.iter().find_map(|when| match when {
        When::Except([], pairs) => Some(pairs.iter().map(|pair| equal(&[*pair])).collect()),
        _ => None,
    })
}

fn masked(index: u8, mask: u64, value: u64) -> Value {
    json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_tables_has_a_name() {
        for (number, ..) in with_agent(allowed::TABLE).iter().chain(refused::TABLE) {
            assert!(names::name(*number).is_some(), "{number}");
        }
    }

    #[test]
    fn says_what_the_tables_say() {
        let profile = profile();
        let rules = profile["syscalls"].as_array().unwrap();
        let about = |name: &str| -> Vec<&Value> {
            let names = |rule: &&Value| rule["names"].as_array().unwrap().contains(&name.into());
            rules.iter().filter(names).collect()
        };
        assert_eq!(about("read")[0]["args"], Value::Null);
        assert_eq!(about("mount")[0]["errnoRet"], 1);
        assert_eq!(about("socket").len(), 5);
        assert_eq!(about("clone")[0]["args"][0]["value"], 0x7E02_0000);
        assert_eq!(about("unshare")[0]["args"][0]["value"], 0x7E02_0080);
        assert_eq!(about("prlimit64")[0]["args"][0]["valueTwo"], 0);
        assert!(about("io_uring_setup").iter().all(|rule| rule["action"] == "SCMP_ACT_ERRNO"));
        assert_eq!(profile["defaultErrnoRet"], 38);
    }
}
