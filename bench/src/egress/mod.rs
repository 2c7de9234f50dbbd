//! Outgoing requests of sandboxes: over TLS with and without rules, with injected secrets beside
//! mitmproxy, and what rules add to a create and to the server's memory.

mod internet;
mod mitmproxy;

use crate::cloud::{Client, Cloud, Form, IMAGE, Setting, with_setting};
use crate::machine;
use crate::program::{self, Parts};
use crate::report::{Goal, Report};
use crate::samples::{Samples, median};
use anyhow::Context as _;
use internet::{Internet, NAME};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const STANDBY: Duration = Duration::from_secs(600);
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 8;
const SECONDS: &str = "3";
const CREATES: usize = 100;
const MANY: usize = 1_000;
const MANY_MEMORY_MB: u32 = 512;

pub(crate) async fn run() -> anyhow::Result<()> {
    let program = program::build()?;
    let parts = Parts::find(&program, IMAGE)?;
    program::build_caller()?;
    let place = tempfile::Builder::new().prefix("holm-bench-egress-").tempdir()?;
    let mut report = machine::begin(place.path()).await?;
    let internet = Internet::start(place.path())?;
    // Prepared before there is a connection to the server, which would be idle meanwhile.
    let mut peer = mitmproxy::Mitmproxy::start(place.path(), &internet)?;
    let mut more = vec![("HOLM_GATEWAY__STANDBY", format!("{}s", STANDBY.as_secs()))];
    more.extend(internet.settings());
    let setting = Setting { program, parts, database: None, more };
    with_setting(setting, async |cloud| {
        let mut client = cloud.client().await?;
        requests(&mut report, &mut client, &internet, &mut peer).await?;
        let mut client = cloud.client().await?;
        creates(&mut report, &mut client).await?;
        memory(&mut report, cloud).await
    })
    .await?;
    report.set_goal("inject_added_p50_ms", Goal::AtMost(1.0));
    report.set_goal("create_with_rules_added_p50_ms", Goal::AtMost(1.0));
    report.set_goal("memory_per_sandbox_with_rules_kib", Goal::AtMost(64.0));
    report.finish("egress")
}

fn lists() -> Value {
    json!({"allowedDomains": ["*.bench.test", "other.example"]})
}

fn injection() -> Value {
    let headers = json!({"authorization": "Bearer {{SECRET:key}}"});
    let rule = json!({"destinations": [NAME], "headers": headers, "secrets": {"key": "sk-bench"}});
    json!({"proxy": {"routing": [rule]}})
}

async fn make(
    client: &mut Client,
    name: &str,
    memory_mb: u32,
    network: &Value,
) -> anyhow::Result<()> {
    let runtime = json!({"generation": "mk2", "image": IMAGE, "memory": memory_mb});
    let mut wish =
        json!({"metadata": {"name": name}, "spec": {"region": "local", "runtime": runtime}});
    if !network.is_null() {
        wish["spec"]["network"] = network.clone();
    }
    client.ask("POST", "/v0/sandboxes", &wish).await.map(drop)
}

/// What one load measured.
struct Seen {
    rps: f64,
    p50_ms: f64,
}

impl Seen {
    fn of(text: &str) -> anyhow::Result<Self> {
        let seen: Value = serde_json::from_str(text.trim()).context(text.to_owned())?;
        let number = |name: &str| seen[name].as_f64().context("a number is missing");
        Ok(Self { rps: number("rps")?, p50_ms: number("p50_ms")? })
    }
}

/// With one connection for times, with several for rates.
async fn load(client: &mut Client, name: &str, connections: usize) -> anyhow::Result<Seen> {
    let authority = match name {
        "injected" => "$SSL_CERT_FILE",
        _ => "/root/authority.pem",
    };
    let command = format!(
        "/usr/local/bin/caller load {NAME} {} {authority} {connections} {SECONDS}",
        Internet::address()
    );
    Seen::of(&client.run(name, &command).await?)
}

async fn requests(
    report: &mut Report,
    client: &mut Client,
    internet: &Internet,
    peer: &mut mitmproxy::Mitmproxy,
) -> anyhow::Result<()> {
    let caller = Form::new(&fs::read(program::build_caller()?)?);
    let authority = Form::new(&fs::read(internet.authority())?);
    for (name, network) in [("free", Value::Null), ("ruled", lists()), ("injected", injection())] {
        make(client, name, 4096, &network).await?;
        client.write(name, "/usr/local/bin/caller", &caller).await?;
        client.write(name, "/root/authority.pem", &authority).await?;
        client.run(name, "chmod 755 /usr/local/bin/caller").await?;
    }
    let (mut rates, mut added, mut of_peer) = (Vec::new(), Vec::new(), Vec::new());
    let (mut plain, mut free) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let without = load(client, "free", CONNECTIONS).await?;
        let with = load(client, "ruled", CONNECTIONS).await?;
        free.push(without.rps);
        rates.push(with.rps / without.rps);
        let direct = load(client, "free", 1).await?;
        let injected = load(client, "injected", 1).await?;
        plain.push(direct.p50_ms);
        added.push(injected.p50_ms - direct.p50_ms);
        of_peer.push(peer.added_ms(internet)?);
    }
    for name in ["free", "ruled", "injected"] {
        client.remove(name).await?;
    }
    report.add("no_rules_rps", median(&free), "1/s");
    report.add("plain_tls_p50_ms", median(&plain), "ms");
    let ratio = median(&rates);
    report.add("rules_rps_ratio", ratio, "x");
    report.set_goal("rules_rps_ratio", Goal::AtLeast(0.9));
    let (ours, theirs) = (median(&added), median(&of_peer));
    report.add("inject_added_p50_ms", ours, "ms");
    report.set_peer("inject_added_p50_ms", "mitmproxy", theirs);
    report.add_ratio("inject_per_mitmproxy", ours, theirs, Goal::AtMost(0.2));
    Ok(())
}

/// Measures until the first command's output, in turns.
async fn creates(report: &mut Report, client: &mut Client) -> anyhow::Result<()> {
    let (mut without, mut with) = (Samples::default(), Samples::default());
    for round in 0..CREATES {
        for (samples, network) in [(&mut without, Value::Null), (&mut with, injection())] {
            let (name, begun) = (format!("create-{round}"), Instant::now());
            make(client, &name, 2048, &network).await?;
            client.run(&name, "/bin/echo hi").await?;
            samples.since(begun);
            client.remove(&name).await?;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    report.add_times("create_without_rules", &without)?;
    report.add_times("create_with_rules", &with)?;
    let added = with.percentile_ms(50)? - without.percentile_ms(50)?;
    report.add("create_with_rules_added_p50_ms", added, "ms");
    Ok(())
}

/// Measures the server's own memory for sandboxes with rules, less that for as many without.
async fn memory(report: &mut Report, cloud: &mut Cloud) -> anyhow::Result<()> {
    let mut grown = Vec::new();
    for network in [Value::Null, injection()] {
        // Restarted: memory that an earlier batch left in the allocator would serve this one.
        cloud.stop();
        cloud.start_again()?;
        let mut client = cloud.client().await?;
        make(&mut client, "first", MANY_MEMORY_MB, &network).await?;
        let before = cloud.process().resident_bytes()?;
        for number in 0..MANY {
            make(&mut client, &format!("many-{number}"), MANY_MEMORY_MB, &network).await?;
        }
        let after = cloud.process().resident_bytes()?;
        grown.push((after as f64 - before as f64) / 1024.0);
        cloud.clear().await?;
    }
    let each = (grown[1] - grown[0]) / MANY as f64;
    report.add("memory_per_sandbox_with_rules_kib", each, "KiB");
    Ok(())
}
