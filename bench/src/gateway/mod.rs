//! The way to a port in a sandbox, beside nginx as a plain proxy to the same port of the same
//! sandbox.
//!
//! The machine does not reach the addresses of sandboxes, by design: Holm makes its sockets inside
//! the sandbox's network and uses them from outside. nginx gets the same: it runs in that network
//! and is given a listening socket from outside. So do the direct callers. All three reach the
//! workload over the same loopback interface.

mod network;
mod nginx;

use crate::cloud::{self, Client, Cloud, Form, with_cloud};
use crate::http1::{Http1, Origin};
use crate::load::{self, Caller, Seen};
use crate::machine;
use crate::program;
use crate::report::{Goal, Report};
use anyhow::Context as _;
use network::Network;
use nginx::Nginx;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

const SANDBOX: &str = "reached";
const PORT: u16 = 3000;
const REPETITIONS: usize = 3;
const MANY: usize = 64;
/// Keeps the sandbox awake for the whole measurement.
const STANDBY: Duration = Duration::from_secs(600);
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) async fn run() -> anyhow::Result<()> {
    println!(
        "Closed loop over kept connections; 1 s to warm up, then 4 s; all in turns, {REPETITIONS} times, and the median of each."
    );
    println!("Answers of 1 KiB. Holm checks an API key each time, nginx checks nothing.");
    println!("nginx      {}", machine::said_aside("nginx", &["-v"]));
    program::prepare(cloud::IMAGE)?;
    program::build_workload()?;
    let report = machine::begin(&std::env::temp_dir()).await?;
    let mut report = with_cloud(STANDBY, async |cloud| measure(report, cloud).await).await?;
    report.set_goal("added_p50_us", Goal::AtMost(100.0));
    report.set_goal("added_p99_us", Goal::AtMost(500.0));
    report.add_ratio_to("added_p50_per_nginx", "added_p50_us", "nginx", Goal::AtMost(1.2));
    report.add_ratio_to("rps_per_nginx", "rps", "nginx", Goal::AtLeast(0.85));
    report.finish("gateway")
}

async fn measure(report: Report, cloud: &Cloud) -> anyhow::Result<Report> {
    let mut client = cloud.client().await?;
    client.make(SANDBOX).await?;
    put_workload(&mut client).await?;
    beside_nginx(report, cloud, PORT, cloud::inside(SANDBOX, &format!("/port/{PORT}/"))).await
}

/// Measures the ways to a port of the only instance: directly, through nginx, and through Holm.
pub(crate) async fn beside_nginx(
    report: Report,
    cloud: &Cloud,
    port: u16,
    path: String,
) -> anyhow::Result<Report> {
    let network = Network::of_the_only_instance(cloud)?;
    let nginx = Nginx::start(&network, port)?;
    let (by_nginx, nginx_id) = (To::Address(plain(&nginx.address)), Some(nginx.id()));
    let by_holm = To::Address(Rc::clone(cloud.origin()));
    let ways = [
        Way::new("direct", To::Inside { network, port }, "/".into(), None),
        Way::new("nginx", by_nginx, "/".into(), nginx_id),
        Way::new("holm", by_holm, path, Some(cloud.process().id())),
    ];
    race(report, ways).await
}

async fn put_workload(client: &mut Client) -> anyhow::Result<()> {
    let file = fs::read(program::build_workload()?)?;
    client.write(SANDBOX, "/usr/local/bin/workload", &Form::new(&file)).await?;
    client.run(SANDBOX, "chmod 755 /usr/local/bin/workload").await?;
    client.begin(SANDBOX, &format!("/usr/local/bin/workload {PORT}"), PORT).await
}

fn plain(address: &str) -> Rc<Origin> {
    Rc::new(Origin { address: address.to_owned(), headers: String::new() })
}

/// One of the ways to the workload, with what was measured on it by one caller and by many.
struct Way {
    name: &'static str,
    to: To,
    path: String,
    /// The proxy's process, to see what it costs.
    process: Option<u32>,
    seen: [Vec<Seen>; 2],
}

enum To {
    Address(Rc<Origin>),
    Inside { network: Network, port: u16 },
}

struct Visitor {
    http: Http1,
    path: String,
}

impl Caller for Visitor {
    type Act = ();

    async fn call(&mut self, (): ()) -> anyhow::Result<()> {
        self.http.ask("GET", &self.path, "").await.map(drop)
    }
}

impl Way {
    fn new(name: &'static str, to: To, path: String, process: Option<u32>) -> Self {
        Self { name, to, path, process, seen: [Vec::new(), Vec::new()] }
    }

    async fn visitors(&self, count: usize) -> anyhow::Result<Vec<Visitor>> {
        let mut visitors = Vec::new();
        for _ in 0..count {
            let http = match &self.to {
                To::Address(origin) => Http1::connect(origin).await?,
                To::Inside { network, port } => {
                    Http1::over(network.connect(*port)?, &plain("localhost"))?
                }
            };
            visitors.push(Visitor { http, path: self.path.clone() });
        }
        Ok(visitors)
    }

    fn medians(&self) -> [Seen; 2] {
        [load::medians(&self.seen[0]), load::medians(&self.seen[1])]
    }
}

async fn race(mut report: Report, mut ways: [Way; 3]) -> anyhow::Result<Report> {
    let mut costs = [(0.0, 0.0); 3];
    for (series, connections) in [1, MANY].into_iter().enumerate() {
        for _ in 0..REPETITIONS {
            for (way, cost) in ways.iter_mut().zip(&mut costs) {
                let mut visitors = way.visitors(connections).await?;
                let before = way.process.map_or(Ok(0.0), processor_seconds)?;
                let seen = load::measure(&mut visitors, || ()).await;
                let seen = seen.with_context(|| format!("{}, {connections} callers", way.name))?;
                if series == 1 {
                    cost.0 += way.process.map_or(Ok(0.0), processor_seconds)? - before;
                    cost.1 += seen.rps * load::SECONDS;
                }
                way.seen[series].push(seen);
            }
        }
    }
    let [direct, nginx, holm] = ways.each_ref().map(Way::medians);
    for (metric, of) in [
        ("added_p50_us", (|seen| seen.p50_us) as fn(&Seen) -> f64),
        ("added_p99_us", |seen| seen.p99_us),
    ] {
        report.add(metric, of(&holm[0]) - of(&direct[0]), "us");
        report.set_peer(metric, "nginx", of(&nginx[0]) - of(&direct[0]));
    }
    report.add("rps", holm[1].rps, "1/s");
    report.set_peer("rps", "nginx", nginx[1].rps);
    report.add("cpu_us_per_request", costs[2].0 / costs[2].1 * 1e6, "us");
    report.set_peer("cpu_us_per_request", "nginx", costs[1].0 / costs[1].1 * 1e6);
    for (way, [one, many]) in ways.iter().zip([direct, nginx, holm]) {
        report.add(format!("{}_p50_us", way.name), one.p50_us, "us");
        report.add(format!("{}_p99_us", way.name), one.p99_us, "us");
        report.add(format!("{}_rps_c{MANY}", way.name), many.rps, "1/s");
        report.add(format!("{}_p99_us_c{MANY}", way.name), many.p99_us, "us");
    }
    Ok(report)
}

/// Returns the processor time that a process and its live children have used.
fn processor_seconds(process: u32) -> anyhow::Result<f64> {
    let children =
        fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let all = children.split_whitespace().filter_map(|id| id.parse().ok()).chain([process]);
    let mut ticks = 0;
    for id in all {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name before it may contain anything except this character.
        let rest = stat.rsplit_once(')').context("a process without a name")?.1;
        ticks += rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}
