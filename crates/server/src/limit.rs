//! How much one caller may ask: requests per second and requests under way of a tenant, failed identifications of an
//! address. What a message within a stream asks for counts as a request where it leaves a record as one.
//!
//! Administrators are not limited. What is remembered is bounded by the number of tenants, and for addresses by a number.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_engine::Engine;
use belljar_policy::TenantId;

use crate::caller::Caller;
use crate::problem::{Problem, Result};

/// Quotas that were changed hold after this time at the latest.
const FRESH: Duration = Duration::from_secs(1);

/// Requests of one tenant at the same time, streams included, so that none can take all places.
pub(crate) const MAX_UNDER_WAY: u64 = 2000;

/// Visitors at the ports of one tenant at the same time: so many of whom nothing is known, and so many who showed a token or
/// key.
const MAX_VISITS: u64 = 1000;

/// Failed identifications that an address has at once, and gets back each second.
const MAX_FAILURES: f64 = 30.0;
const FAILURES_PER_SECOND: f64 = 1.0;

/// Addresses that are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// What is left of a quantity that grows back.
#[derive(Debug)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn full(size: f64, now: Instant) -> Self {
        Self { left: size, at: now }
    }

    pub(crate) fn refill(&mut self, rate: f64, size: f64, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * rate).min(size);
        self.at = now;
    }

    /// Since it was last filled.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    /// How long until something can be taken; `None`: never.
    pub(crate) fn wait(&self, rate: f64) -> Option<Duration> {
        Duration::try_from_secs_f64((1.0 - self.left).max(0.0) / rate).ok()
    }

    pub(crate) fn take(&mut self) -> bool {
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[derive(Debug)]
struct Usage {
    /// `None`: as many as there is room for.
    rate: Option<u64>,
    read_at: Instant,
    bucket: Bucket,
    under_way: u64,
}

/// Keeps count. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    engine: Engine,
    tenants: Arc<Mutex<HashMap<TenantId, Usage>>>,
    visits: Arc<Mutex<HashMap<Visited, u64>>>,
    failures: Arc<Mutex<HashMap<IpAddr, Bucket>>>,
}

/// A request that was let in, until dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    limits: Limits,
    tenant: TenantId,
}

/// A visitor of a port, until dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    limits: Limits,
    visited: Visited,
}

/// Who counts together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Visited {
    tenant: TenantId,
    anonymous: bool,
}

impl Limits {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, tenants: Arc::default(), visits: Arc::default(), failures: Arc::default() }
    }

    /// Lets a request of a tenant in, or tells it to come back later.
    pub(crate) async fn admit(&self, tenant: &TenantId) -> Result<Admitted> {
        let rate = self.rate(tenant).await?;
        let mut tenants = self.tenants();
        let now = Instant::now();
        let usage = tenants.entry(tenant.clone()).or_insert_with(|| Usage::new(rate, now));
        if usage.under_way >= MAX_UNDER_WAY {
            return Err(limited(format!(
                "tenant `{tenant}` has {MAX_UNDER_WAY} requests under way"
            ))
            .with_remedy("let some of them end first"));
        }
        usage.take(tenant, rate, now)?;
        usage.under_way += 1;
        Ok(Admitted { limits: self.clone(), tenant: tenant.clone() })
    }

    /// Lets a visitor of a tenant's port in. One page is many requests, so only those at the same time count; and not among
    /// the tenant's own, which visitors must not be able to keep out. Nor can those who are let in without a word keep out those
    /// who have shown something.
    pub(crate) fn visit(&self, visitor: &Caller, anonymous: bool) -> Result<Option<Visit>> {
        if visitor.is_admin() {
            return Ok(None);
        }
        let visited = Visited { tenant: visitor.tenant(), anonymous };
        let mut visits = self.visits();
        let under_way = visits.entry(visited.clone()).or_default();
        if *under_way >= MAX_VISITS {
            return Err(limited("too many visitors are at what this tenant shows")
                .with_remedy("come back later"));
        }
        *under_way += 1;
        Ok(Some(Visit { limits: self.clone(), visited }))
    }

    /// Counts one more thing that a tenant asks for within a request that was let in, as soon as its quota has room for it.
    /// It is refused where that takes longer than `patience`.
    pub(crate) async fn count(&self, tenant: &TenantId, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let rate = self.rate(tenant).await?;
            let (refused, wait) = {
                let mut tenants = self.tenants();
                let now = Instant::now();
                let usage = tenants.entry(tenant.clone()).or_insert_with(|| Usage::new(rate, now));
                match usage.take(tenant, rate, now) {
                    Ok(()) => return Ok(()),
                    Err(refused) => (refused, usage.bucket.wait(rate.unwrap_or_default() as f64)),
                }
            };
            match wait.filter(|wait| begun.elapsed() + *wait <= patience) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(refused),
            }
        }
    }

    /// Requests per second, as they are now or were a moment ago.
    async fn rate(&self, tenant: &TenantId) -> Result<Option<u64>> {
        let now = Instant::now();
        let known = self.tenants().get(tenant).map(|usage| (usage.rate, usage.read_at));
        match known {
            Some((rate, read_at)) if now.duration_since(read_at) < FRESH => Ok(rate),
            _ => self.read(tenant, now).await,
        }
    }

    async fn read(&self, tenant: &TenantId, now: Instant) -> Result<Option<u64>> {
        let rate = match self.engine.tenants().get(tenant).await {
            Ok(found) => found.quotas.requests_per_second,
            // A tenant that is gone has nothing that a request could reach.
            Err(error) if error.code() == Code::TenantNotFound => None,
            Err(error) => return Err(error.into()),
        };
        let mut tenants = self.tenants();
        let usage = tenants.entry(tenant.clone()).or_insert_with(|| Usage::new(rate, now));
        if usage.rate != rate {
            usage.bucket = Bucket::full(rate.map_or(0.0, size), now);
            usage.rate = rate;
        }
        usage.read_at = now;
        Ok(rate)
    }

    /// An address sent a key or token that is not right; refused where that happens too often. Right ones never come here,
    /// so that nobody can keep out who shares an address with them.
    pub(crate) fn failed(&self, address: IpAddr) -> Result<()> {
        let now = Instant::now();
        let mut failures = self.failures();
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, bucket| {
                bucket.refill(FAILURES_PER_SECOND, MAX_FAILURES, now);
                bucket.left < MAX_FAILURES
            });
        }
        if failures.len() >= MAX_ADDRESSES {
            failures.clear();
        }
        let bucket =
            failures.entry(network(address)).or_insert_with(|| Bucket::full(MAX_FAILURES, now));
        bucket.refill(FAILURES_PER_SECOND, MAX_FAILURES, now);
        if bucket.take() {
            return Ok(());
        }
        Err(limited("this address has sent wrong keys too often").with_remedy("send the right key"))
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Usage>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visits(&self) -> MutexGuard<'_, HashMap<Visited, u64>> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<IpAddr, Bucket>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Usage {
    fn new(rate: Option<u64>, now: Instant) -> Self {
        let bucket = Bucket::full(rate.map_or(0.0, size), now);
        Self { rate, read_at: now, bucket, under_way: 0 }
    }

    fn take(&mut self, tenant: &TenantId, rate: Option<u64>, now: Instant) -> Result<()> {
        let Some(rate) = rate else { return Ok(()) };
        self.bucket.refill(rate as f64, size(rate), now);
        if self.bucket.take() {
            return Ok(());
        }
        let message = format!("tenant `{tenant}` may send {rate} requests per second");
        Err(limited(message).with_remedy("send fewer, or ask for a larger quota"))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(usage) = self.limits.tenants().get_mut(&self.tenant) {
            usage.under_way = usage.under_way.saturating_sub(1);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut visits = self.limits.visits();
        let left = visits.get(&self.visited).map_or(0, |under_way| under_way.saturating_sub(1));
        match left {
            0 => drop(visits.remove(&self.visited)),
            left => drop(visits.insert(self.visited.clone(), left)),
        }
    }
}

/// What may come at once.
fn size(rate: u64) -> f64 {
    2.0 * rate as f64
}

/// Who has one IPv6 address has 2⁶⁴ of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

fn limited(message: impl Into<String>) -> Problem {
    Problem::new(Code::RateLimited, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Proof;
    use belljar_engine::{EngineOptions, Quotas};
    use belljar_policy::SandboxId;

    async fn limits(directory: &std::path::Path) -> Limits {
        let engine = Engine::open(EngineOptions::new(directory, Vec::new())).await.unwrap();
        Limits::new(engine)
    }

    fn quota(rate: u64) -> Quotas {
        Quotas { requests_per_second: Some(rate), ..Quotas::default() }
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(4.0, start);
        let mut take = |after_ms: u64| {
            bucket.refill(2.0, 4.0, start + Duration::from_millis(after_ms));
            bucket.take()
        };
        assert_eq!([take(0), take(0), take(0), take(0), take(0)], [true, true, true, true, false]);
        assert_eq!([take(400), take(500), take(600)], [false, true, false]);
        assert_eq!(
            [take(9000), take(9000), take(9000), take(9000), take(9000)].map(u8::from),
            [1, 1, 1, 1, 0]
        );
    }

    fn visitor(tenant: &str) -> Caller {
        let (tenant, id) = (TenantId::parse(tenant), SandboxId::parse("n001abcdefgh"));
        Caller::visitor(&tenant.unwrap(), &id.unwrap(), "test")
    }

    #[tokio::test]
    async fn visitors_are_bounded_and_take_nothing_from_the_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path()).await;
        let (a, b) = (visitor("default"), visitor("b"));
        let visit = |visitor: &Caller| limits.visit(visitor, true).map(Option::unwrap);
        let mut visits: Vec<_> = (0..MAX_VISITS).map(|_| visit(&a).unwrap()).collect();
        assert_eq!(visit(&a).unwrap_err().code, Code::RateLimited);
        visit(&b).unwrap();
        limits.admit(&a.tenant()).await.unwrap();
        visits.pop();
        visits.push(visit(&a).unwrap());
        assert!(visit(&a).is_err());
        drop(visits);
        assert!(limits.visits().is_empty());
    }

    #[tokio::test]
    async fn who_shows_nothing_keeps_nobody_out_who_does() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path()).await;
        let visitor = visitor("default");
        let fill = |anonymous| {
            let visits = (0..MAX_VISITS).map(|_| limits.visit(&visitor, anonymous).unwrap());
            let visits: Vec<_> = visits.collect();
            assert_eq!(limits.visit(&visitor, anonymous).unwrap_err().code, Code::RateLimited);
            visits
        };
        let _anybody = fill(true);
        let _known = fill(false);
        // An administrator's own tenant is the default one, whatever is shown of whomever.
        let administrator = Caller::operator("test", Proof::Key);
        assert_eq!(administrator.tenant(), visitor.tenant());
        assert!(limits.visit(&administrator, false).unwrap().is_none());
    }

    #[tokio::test]
    async fn each_tenant_has_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path()).await;
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        limits.engine.tenants().create(a.clone(), quota(1)).await.unwrap();
        limits.engine.tenants().create(b.clone(), Quotas::default()).await.unwrap();
        limits.admit(&a).await.unwrap();
        limits.admit(&a).await.unwrap();
        let problem = limits.admit(&a).await.unwrap_err();
        assert_eq!((problem.code, problem.http_status().as_u16()), (Code::RateLimited, 429));
        for _ in 0..100 {
            limits.admit(&b).await.unwrap();
        }
    }

    #[tokio::test]
    async fn too_many_at_once_wait_for_others_to_end() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path()).await;
        let tenant = TenantId::default();
        let mut admitted = Vec::new();
        for _ in 0..MAX_UNDER_WAY {
            admitted.push(limits.admit(&tenant).await.unwrap());
        }
        assert_eq!(limits.admit(&tenant).await.unwrap_err().code, Code::RateLimited);
        admitted.pop();
        limits.admit(&tenant).await.unwrap();
    }

    #[tokio::test]
    async fn wrong_keys_are_throttled_by_address() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path()).await;
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let limited = (0..60).find_map(|_| limits.failed(address).err());
        assert_eq!(limited.unwrap().code, Code::RateLimited);
        assert_eq!(limits.failed(neighbour).unwrap_err().code, Code::RateLimited);
        limits.failed(other).unwrap();
    }
}
