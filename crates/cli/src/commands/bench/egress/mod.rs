//! `belljar bench egress`: what the doors cost.
//!
//! The same client asks the same origin twice: straight, and from a sandbox through its doors. Both are in network
//! namespaces made for it, so that nothing but this host is measured and nothing of its network is touched. Rounds
//! alternate, so that the noise of the host meets both alike.

mod client;
mod origin;
mod report;
mod world;

use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;

use self::client::{Work, create, destroy};
use self::origin::{BULK, CUT, ECHO, HOLD, WEB, WEB_NAME};
use self::report::{Connections, Creation, Intercepted, Latency, PassThrough, Report};
use self::world::{NAMES, World};
use super::Done;
use super::beside::Beside;
use super::stats::Figures;
use crate::args::BenchEgressArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Transfers of each kind.
const ROUNDS: u32 = 5;
const WORD: u64 = 64;
/// Flows that are cut, one after the other.
const REVOCATIONS: u32 = 20;
/// Sandboxes that are made in a row, so that what the launcher keeps ready is of the kind that is wanted.
const IN_A_ROW: u32 = 10;

/// What the measurements need.
struct Measuring {
    world: World,
    beside: Beside,
    client: Client,
    roots: tempfile::NamedTempFile,
    bytes: u64,
}

pub(super) async fn egress(
    bench: &super::Bench<'_>,
    args: &BenchEgressArgs,
) -> Result<Done, Failure> {
    let refuse = |error: &dyn std::error::Error| {
        Failure::new(Code::HostUnsupported, "the network of the benchmark cannot be made")
            .caused_by(error)
            .with_remedy("run it as root: it makes network namespaces of its own")
    };
    let world = World::new().map_err(|error| refuse(&error))?;
    let roots = tempfile::NamedTempFile::new().map_err(|error| refuse(&error))?;
    std::fs::write(&roots, &world.origin.certificate).map_err(|error| refuse(&error))?;
    let (names, trusted) = (NAMES.to_string(), roots.path().to_string_lossy().into_owned());
    let arguments = ["--dns-upstream", &names, "--tls-roots", &trusted];
    let beside = Beside::start_by(&arguments, |command| world.spawn(command))?;
    let client = beside.client().await?;
    let measuring =
        Measuring { world, beside, client, roots, bytes: u64::from(args.megabytes) << 20 };
    let measured = bench.until_asked(measuring.measure(args)).await;
    drop(measuring);
    let report = measured?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.to_string())?;
    }
    Ok(Done::Success)
}

impl Measuring {
    async fn measure(&self, args: &BenchEgressArgs) -> Result<Report, Failure> {
        let raw = create(&self.client, Some(WEB_NAME)).await?;
        let looked_into = create(&self.client, Some(&format!("{WEB_NAME}/b"))).await?;
        let pass_through = self.pass_through(&raw).await?;
        let intercepted = self.intercepted(&looked_into).await?;
        let echo = Work { mode: "echo", port: ECHO, size: WORD, count: args.count };
        let web = Work { mode: "web", port: WEB, size: WORD, count: args.count };
        let latency = vec![
            self.latency("raw", echo, &raw).await?,
            self.latency("intercepted keep-alive", web, &looked_into).await?,
        ];
        let connections = self.connections(&raw, args.connections).await?;
        let revocation = self.revocation(&raw).await?;
        for sandbox in [raw, looked_into] {
            destroy(&self.client, sandbox).await?;
        }
        let creation = self.creation(args.sandboxes).await?;
        Ok(Report { pass_through, intercepted, latency, connections, revocation, creation })
    }

    async fn pass_through(&self, sandbox: &str) -> Result<PassThrough, Failure> {
        let work = Work { mode: "bulk", port: BULK, size: self.bytes, count: 1 };
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            direct.extend(work.direct(&self.world, self.roots.path()).await?);
            through.extend(work.inside(&self.client, sandbox).await?);
        }
        let [direct, through] = [direct, through].map(|taken| gigabits(self.bytes, median(taken)));
        let ratio = through / direct;
        Ok(PassThrough { direct_gbit_per_second: direct, through_gbit_per_second: through, ratio })
    }

    async fn intercepted(&self, sandbox: &str) -> Result<Intercepted, Failure> {
        let work = Work { mode: "web", port: WEB, size: self.bytes, count: 1 };
        let (mut direct, mut through, mut seconds) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..ROUNDS {
            direct.extend(work.direct(&self.world, self.roots.path()).await?);
            let before = self.beside.processor_seconds();
            through.extend(work.inside(&self.client, sandbox).await?);
            seconds += self.beside.processor_seconds() - before;
        }
        // Each client fetches once more, to begin with; what the server does for the rest is counted against it, too.
        let bytes = self.bytes * 2 * u64::from(ROUNDS);
        Ok(Intercepted {
            direct_gbit_per_second: gigabits(self.bytes, median(direct)),
            through_gbit_per_second: gigabits(self.bytes, median(through)),
            gbit_per_core_second: gigabits(bytes, Duration::from_secs_f64(seconds)),
        })
    }

    async fn latency(&self, name: &str, work: Work, sandbox: &str) -> Result<Latency, Failure> {
        let work = Work { count: work.count.div_ceil(ROUNDS), ..work };
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            direct.extend(work.direct(&self.world, self.roots.path()).await?);
            through.extend(work.inside(&self.client, sandbox).await?);
        }
        let direct = Figures::of(&format!("{name}, without Belljar"), direct);
        let through = Figures::of(&format!("{name}, through the doors"), through);
        let added_p50_ms = through.p50_ms - direct.p50_ms;
        Ok(Latency { name: name.to_owned(), direct, through, added_p50_ms })
    }

    async fn connections(&self, sandbox: &str, count: u32) -> Result<Connections, Failure> {
        let half = count / 2;
        let work = Work { mode: "hold", port: HOLD, size: 0, count: half * 2 };
        let origin = &self.world.origin;
        let broken = |error: std::io::Error| {
            Failure::new(Code::PortUnreachable, "a connection of the benchmark broke off")
                .caused_by(&error)
        };
        let held = work.inside(&self.client, sandbox);
        let watched = async {
            let mut resident = vec![self.beside.resident_bytes()];
            for halves in 1..=2 {
                origin.keeps(half as usize * halves).await;
                resident.push(self.beside.resident_bytes());
                origin.go_on().map_err(broken)?;
            }
            Ok(resident)
        };
        let (taken, resident) = tokio::try_join!(held, watched)?;
        let each = |from: usize| {
            let grown = resident[from + 1].saturating_sub(resident[from]);
            grown as f64 / 1024.0 / f64::from(half)
        };
        Ok(Connections {
            count: half * 2,
            halves_open_after_ms: taken.iter().map(|taken| taken.as_secs_f64() * 1e3).collect(),
            first_half_kib_each: each(0),
            second_half_kib_each: each(1),
        })
    }

    /// A flow is opened, its host is denied, and allowed again; many times.
    async fn revocation(&self, sandbox: &str) -> Result<Figures, Failure> {
        let work = Work { mode: "cut", port: CUT, size: 0, count: 0 };
        let change = async |allow: bool| {
            let host = vec![WEB_NAME.to_owned()];
            let (allow, deny) = if allow { (host, vec![]) } else { (vec![], host) };
            let sandbox = sandbox.to_owned();
            let request = v1::ChangeNetworkRequest { sandbox, allow, deny, ..Default::default() };
            self.client.networks.clone().change_network(request).await
        };
        let watched = async {
            let mut taken = Vec::new();
            for number in 0..REVOCATIONS as usize {
                self.world.origin.opened(number).await;
                change(false).await?;
                let answered = Instant::now();
                let ended = self.world.origin.ended(number).await.unwrap_or(answered);
                taken.push(ended.saturating_duration_since(answered));
                change(true).await?;
            }
            self.world.origin.end_cuts();
            Ok::<_, Failure>(taken)
        };
        let (_, taken) = tokio::try_join!(work.inside(&self.client, sandbox), watched)?;
        Ok(Figures::of("its open flow is cut after the answer", taken))
    }

    async fn creation(&self, count: u32) -> Result<Creation, Failure> {
        let (mut none, mut allowlist) = (Vec::new(), Vec::new());
        for _ in 0..count.div_ceil(IN_A_ROW) {
            none.extend(self.create_many(None).await?);
            allowlist.extend(self.create_many(Some(WEB_NAME)).await?);
        }
        let none = Figures::of("without a network", none);
        let allowlist = Figures::of("with an allowlist", allowlist);
        let ratio = allowlist.p50_ms / none.p50_ms;
        Ok(Creation { none, allowlist, ratio })
    }

    async fn create_many(&self, allow: Option<&str>) -> Result<Vec<Duration>, Failure> {
        /// Those for which something of the other kind was kept ready.
        const OTHERS: usize = 3;
        let mut taken = Vec::new();
        for _ in 0..IN_A_ROW as usize + OTHERS {
            let begun = Instant::now();
            let sandbox = create(&self.client, allow).await?;
            taken.push(begun.elapsed());
            destroy(&self.client, sandbox).await?;
        }
        Ok(taken.split_off(OTHERS))
    }
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

fn gigabits(bytes: u64, taken: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e9 / taken.as_secs_f64()
}
