//! Which address was given to the sandbox for which name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// A client has at least this long to use an answer before it is checked again.
pub(crate) const FRESH_MIN: Duration = Duration::from_secs(5);
/// However long the owner of a name says: afterwards it is checked again.
pub(crate) const FRESH_MAX: Duration = Duration::from_secs(3600);
/// Unused for longer, an answer is forgotten.
pub(crate) const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Addresses that are remembered; the longest unused is forgotten first.
const MAX_ADDRESSES: usize = 8192;
/// Names that one address is remembered for.
const MAX_NAMES: usize = 64;
/// Addresses that stand in for names that are resolved only after somebody said yes. The network (RFC 2544) is in no
/// use on the internet.
const STAND_INS: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const MAX_STAND_INS: u32 = 4096;

/// A name that an address was given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) name: String,
    /// Whether the address may be used without resolving the name again.
    pub(crate) fresh: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Pins {
    addresses: HashMap<IpAddr, Vec<Pin>>,
    stand_ins: HashMap<String, Ipv4Addr>,
    next_stand_in: u32,
}

#[derive(Debug)]
struct Pin {
    name: String,
    /// None: never, the address stands in for the name.
    fresh_until: Option<Instant>,
    used: Instant,
}

impl Pins {
    /// The sandbox was told that `name` has `address`.
    pub(crate) fn pin(&mut self, now: Instant, address: IpAddr, name: &str, ttl: Duration) {
        self.insert(now, address, name, Some(now + ttl.clamp(FRESH_MIN, FRESH_MAX)));
    }

    /// An address that stands in for `name`.
    pub(crate) fn stand_in(&mut self, now: Instant, name: &str) -> Ipv4Addr {
        let address = match self.stand_ins.get(name) {
            Some(address) => *address,
            None => {
                // Skips the network's own first address.
                self.next_stand_in = self.next_stand_in % MAX_STAND_INS + 1;
                let address = Ipv4Addr::from(STAND_INS + self.next_stand_in);
                self.stand_ins.retain(|_, taken| *taken != address);
                self.addresses.remove(&IpAddr::V4(address));
                self.stand_ins.insert(name.to_owned(), address);
                address
            }
        };
        self.insert(now, address.into(), name, None);
        address
    }

    /// The names that `address` was given for, newest first.
    pub(crate) fn names(&mut self, now: Instant, address: IpAddr) -> Vec<Pinned> {
        let Some(pins) = self.addresses.get_mut(&address) else { return Vec::new() };
        pins.retain(|pin| now.saturating_duration_since(pin.used) < KEPT);
        let pinned = |pin: &mut Pin| {
            pin.used = now;
            let fresh = pin.fresh_until.is_some_and(|until| now < until);
            Pinned { name: pin.name.clone(), fresh }
        };
        pins.iter_mut().rev().map(pinned).collect()
    }

    fn insert(&mut self, now: Instant, address: IpAddr, name: &str, fresh_until: Option<Instant>) {
        if !self.addresses.contains_key(&address) && self.addresses.len() >= MAX_ADDRESSES {
            self.forget(now);
        }
        let pins = self.addresses.entry(address).or_default();
        pins.retain(|pin| pin.name != name);
        if pins.len() >= MAX_NAMES {
            pins.remove(0);
        }
        pins.push(Pin { name: name.to_owned(), fresh_until, used: now });
    }

    /// Forgets what is over, and the longest unused eighth.
    fn forget(&mut self, now: Instant) {
        let used = |pins: &Vec<Pin>| pins.iter().map(|pin| pin.used).max();
        let mut ages: Vec<Instant> = self.addresses.values().filter_map(used).collect();
        ages.sort_unstable();
        let cut = ages.get(ages.len() / 8).copied();
        self.addresses.retain(|_, pins| {
            used(pins).is_some_and(|used| {
                now.saturating_duration_since(used) < KEPT && cut.is_none_or(|cut| used > cut)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn fresh(pins: &mut Pins, now: Instant) -> Vec<(String, bool)> {
        pins.names(now, ADDRESS).into_iter().map(|pinned| (pinned.name, pinned.fresh)).collect()
    }

    #[test]
    fn an_answer_is_fresh_then_checked_then_forgotten() {
        let mut pins = Pins::default();
        let now = Instant::now();
        assert!(pins.names(now, ADDRESS).is_empty());
        pins.pin(now, ADDRESS, "a.example", Duration::ZERO);
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        assert_eq!(fresh(&mut pins, at(4)), [("a.example".to_owned(), true)]);
        assert_eq!(fresh(&mut pins, at(6)), [("a.example".to_owned(), false)]);
        pins.pin(now, ADDRESS, "b.example", Duration::from_secs(1 << 30));
        assert_eq!(
            fresh(&mut pins, at(3601)),
            [("b.example".to_owned(), false), ("a.example".to_owned(), false)]
        );
        assert_eq!(fresh(&mut pins, at(3601 + 25 * 3600)), []);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_newest() {
        let mut pins = Pins::default();
        let begin = Instant::now();
        for n in 0..20_000u32 {
            let now = begin + Duration::from_millis(n.into());
            pins.pin(now, Ipv4Addr::from(n).into(), "a.example", Duration::from_secs(60));
            assert!(pins.addresses.len() <= MAX_ADDRESSES);
        }
        let now = begin + Duration::from_secs(20);
        assert!(!pins.names(now, Ipv4Addr::from(19_999).into()).is_empty());
        assert!(pins.names(now, Ipv4Addr::from(0).into()).is_empty());
        for n in 0..1000 {
            pins.pin(now, ADDRESS, &format!("{n}.example"), Duration::ZERO);
        }
        assert_eq!(pins.names(now, ADDRESS).len(), MAX_NAMES);
    }

    #[test]
    fn stand_ins_are_one_per_name_and_never_fresh() {
        let mut pins = Pins::default();
        let now = Instant::now();
        let first = pins.stand_in(now, "a.example");
        assert_eq!(pins.stand_in(now, "a.example"), first);
        let expected = Pinned { name: "a.example".to_owned(), fresh: false };
        assert_eq!(pins.names(now, first.into()), [expected]);
        for n in 0..MAX_STAND_INS {
            assert_ne!(pins.stand_in(now, &format!("{n}.example")), Ipv4Addr::from(STAND_INS));
        }
        // Its address went to another name, and so did the meaning of the address.
        assert!(!pins.names(now, first.into()).iter().any(|pinned| pinned.name == "a.example"));
    }
}
