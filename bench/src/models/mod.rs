//! What Holm adds to a provider's answer, beside LiteLLM's proxy and nginx as a plain proxy, all in
//! front of the same stand-in.

mod asker;
mod peers;
mod streams;

use crate::cloud::{self, Cloud, Setting, WORKSPACE, with_setting};
use crate::load::{self, Seen};
use crate::machine;
use crate::program::{self, Parts};
use crate::report::{Goal, Report};
use crate::samples::Samples;
use asker::{Asker, Question};
use peers::{Litellm, Nginx, Standin};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};

const REPETITIONS: usize = 3;
const MANY: usize = 64;
/// Tokens of each answer.
const TOKENS: usize = 32;
/// A model in the price table, which a limit of money needs.
const PRICED: &str = "gpt-4o";
const STREAMS: Duration = Duration::from_secs(2);
/// Never reached, but checked all the same.
const MONEY: &str = "1000000";

pub(crate) async fn run() -> anyhow::Result<()> {
    println!(
        "Closed loop over kept connections; 1 s to warm up, then 4 s; all in turns, {REPETITIONS} times, and the median of each."
    );
    println!(
        "Answers of {TOKENS} tokens. Holm checks an API key and a limit of money, and meters; LiteLLM checks a key; nginx does nothing."
    );
    println!("nginx      {}", machine::said_aside("nginx", &["-v"]));
    let program = program::build()?;
    let (parts, standin) = (Parts::find(&program, cloud::IMAGE)?, Standin::start()?);
    let litellm = Litellm::start(&standin, PRICED, TOKENS).await;
    let report = machine::begin(&std::env::temp_dir()).await?;
    let mut more = vec![("HOLM_MODELS__INSIDE", r#"["127.0.0.1"]"#.to_owned())];
    let unlimited = [
        "HOLM_LIMITS__KEY_PER_SECOND",
        "HOLM_LIMITS__KEY_BURST",
        "HOLM_LIMITS__WORKSPACE_PER_SECOND",
        "HOLM_LIMITS__WORKSPACE_BURST",
    ];
    more.extend(unlimited.map(|name| (name, "1000000".to_owned())));
    let setting = Setting { program, parts, database: None, more };
    let mut report =
        with_setting(setting, async |cloud| measure(report, cloud, &standin, litellm).await)
            .await?;
    set_goals(&mut report);
    report.finish("models")
}

fn set_goals(report: &mut Report) {
    for name in ["added_p50_ms", "stream_added_p50_ms", "first_token_added_p50_ms"] {
        report.set_goal(name, Goal::AtMost(0.3));
    }
    for name in ["added_p99_ms", "stream_added_p99_ms"] {
        report.set_goal(name, Goal::AtMost(1.0));
    }
    for name in ["rps", "stream_rps"] {
        let (litellm, nginx) = (format!("{name}_per_litellm"), format!("{name}_per_nginx"));
        report.add_ratio_to(&litellm, name, "litellm", Goal::AtLeast(100.0));
        report.add_ratio_to(&nginx, name, "nginx", Goal::AtLeast(0.4));
    }
    report.set_goal("memory_per_stream_kib", Goal::AtMost(100.0));
}

async fn measure(
    mut report: Report,
    cloud: &mut Cloud,
    standin: &Standin,
    litellm: anyhow::Result<Litellm>,
) -> anyhow::Result<Report> {
    let money = json!({"granularity": "month", "cost": MONEY});
    make(cloud, "policies", "money", &json!({"type": "maxToken", "maxTokens": money})).await?;
    model(cloud, "fast", &standin.base(&format!("out={TOKENS}"))).await?;
    model(cloud, "held", &standin.base("endless,gap=1000")).await?;
    let nginx = Nginx::start(&standin.address)?;
    let direct = format!("{}/chat/completions", standin.path(&format!("out={TOKENS}")));
    let mut ways = vec![
        Way::new("direct", &standin.address, &direct, ""),
        Way::new("nginx", &nginx.address, &direct, ""),
        Way::new("holm", &cloud.origin().address, &path("fast"), &cloud.origin().headers),
    ];
    match &litellm {
        Ok(litellm) => {
            ways.push(Way::new("litellm", &litellm.address, "/v1/chat/completions", Litellm::KEY));
        }
        Err(error) => report.note(format!("LiteLLM was not measured: {error:#}")),
    }
    let mut report = race(report, &ways).await?;
    drop(litellm);
    let held = Question::new(&cloud.origin().address, &path("held"), &cloud.origin().headers);
    streams::measure(&mut report, cloud, held.streams(PRICED)).await?;
    Ok(report)
}

fn path(model: &str) -> String {
    format!("/{WORKSPACE}/models/{model}/v1/chat/completions")
}

async fn make(cloud: &Cloud, kinds: &str, name: &str, spec: &Value) -> anyhow::Result<()> {
    let body = json!({"metadata": {"name": name}, "spec": spec});
    cloud.client().await?.ask("POST", &format!("/v0/{kinds}"), &body).await.map(drop)
}

/// Creates an OpenAI model at another address.
async fn model(cloud: &Cloud, name: &str, endpoint: &str) -> anyhow::Result<()> {
    let secret = json!({"apiKey": "sk-of-the-provider"});
    let connection =
        json!({"integration": "openai", "config": {"endpoint": endpoint}, "secret": secret});
    make(cloud, "integrations/connections", name, &connection).await?;
    let runtime = json!({"type": "openai", "model": PRICED});
    let spec = json!({"integrationConnections": [name], "runtime": runtime, "policies": ["money"]});
    make(cloud, "models", name, &spec).await
}

/// One of the ways to the stand-in.
struct Way {
    name: &'static str,
    question: Question,
}

impl Way {
    fn new(name: &'static str, address: &str, path: &str, headers: &str) -> Self {
        Self { name, question: Question::new(address, path, headers) }
    }

    async fn askers(&self, count: usize, streams: bool) -> anyhow::Result<Vec<Asker>> {
        let question =
            if streams { self.question.streams(PRICED) } else { self.question.waits(PRICED) };
        let (question, mut askers) = (Rc::new(question), Vec::new());
        for _ in 0..count {
            askers.push(Asker::connect(&question).await?);
        }
        Ok(askers)
    }

    /// Returns the time to the first token.
    async fn first_token_ms(&self) -> anyhow::Result<f64> {
        let (mut askers, mut times) = (self.askers(1, true).await?, Samples::default());
        let begun = Instant::now();
        while let Some(asker) = askers.first_mut().filter(|_| begun.elapsed() < STREAMS) {
            times.add(asker.ask().await?);
        }
        times.percentile_ms(50)
    }
}

/// What was measured on one way.
#[derive(Default)]
struct Times {
    one: Vec<Seen>,
    many: Vec<Seen>,
    first: Vec<f64>,
}

impl Times {
    fn first(&self) -> f64 {
        let mut all = self.first.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

async fn race(mut report: Report, ways: &[Way]) -> anyhow::Result<Report> {
    for streams in [false, true] {
        let mut all: Vec<Times> = ways.iter().map(|_| Times::default()).collect();
        for _ in 0..REPETITIONS {
            for (way, times) in ways.iter().zip(&mut all) {
                times.one.push(load::measure(&mut way.askers(1, streams).await?, || ()).await?);
                times.many.push(load::measure(&mut way.askers(MANY, streams).await?, || ()).await?);
                if streams {
                    times.first.push(way.first_token_ms().await?);
                }
            }
        }
        tell(&mut report, ways, &all, streams);
    }
    Ok(report)
}

fn tell(report: &mut Report, ways: &[Way], all: &[Times], streams: bool) {
    let prefix = if streams { "stream_" } else { "" };
    let Some(((direct, holm), nginx)) = all.first().zip(all.get(2)).zip(all.get(1)) else { return };
    let peers: Vec<(&str, &Times)> = std::iter::once(("nginx", nginx))
        .chain(ways.iter().zip(all).skip(3).map(|(way, times)| (way.name, times)))
        .collect();
    let added = |times: &Times, of: fn(&Seen) -> f64| {
        (of(&load::medians(&times.one)) - of(&load::medians(&direct.one))) / 1e3
    };
    let percentiles =
        [("p50", (|seen| seen.p50_us) as fn(&Seen) -> f64), ("p99", |seen| seen.p99_us)];
    for (name, of) in percentiles {
        let metric = format!("{prefix}added_{name}_ms");
        report.add(&metric, added(holm, of), "ms");
        peers.iter().for_each(|(peer, times)| report.set_peer(&metric, peer, added(times, of)));
    }
    if streams {
        report.add("first_token_added_p50_ms", holm.first() - direct.first(), "ms");
        for (peer, times) in &peers {
            report.set_peer("first_token_added_p50_ms", peer, times.first() - direct.first());
        }
    }
    let metric = format!("{prefix}rps");
    report.add(&metric, load::medians(&holm.many).rps, "1/s");
    for (peer, times) in &peers {
        report.set_peer(&metric, peer, load::medians(&times.many).rps);
    }
    for (way, times) in ways.iter().zip(all) {
        let (one, many) = (load::medians(&times.one), load::medians(&times.many));
        report.add(format!("{prefix}{}_p50_us", way.name), one.p50_us, "us");
        report.add(format!("{prefix}{}_p99_us", way.name), one.p99_us, "us");
        report.add(format!("{prefix}{}_rps_c{MANY}", way.name), many.rps, "1/s");
    }
}
