//! From zero: the first answer of an agent whose replicas are gone, and ten thousand of those.

use super::agents::Agent;
use crate::cloud::{Cloud, wait_for};
use crate::report::Report;
use crate::samples::Samples;
use futures_util::future::join_all;
use std::time::{Duration, Instant};

const COLD: usize = 200;
/// Requests that find nothing running, of all agents together.
const FIRST: usize = 10_000;
const AGENTS: usize = 50;
const GONE_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn measure(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let agent = Agent::deploy(cloud, "cold", "x").await?;
    let mut times = Samples::default();
    for _ in 0..COLD {
        wait_for(GONE_MAX, "a replica stays", async || Ok(cloud.instances()?.is_empty())).await?;
        let mut http = agent.http(cloud).await?;
        let begun = Instant::now();
        agent.ask(&mut http).await?;
        times.since(begun);
    }
    report.add_times("cold", &times)?;
    agent.remove(cloud).await?;
    firsts(report, cloud).await
}

/// Many agents at once, each asked again and again when nothing of it runs.
async fn firsts(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        agents.push(Agent::deploy(cloud, &format!("first-{number}"), "x").await?);
    }
    let mut failures = 0;
    for _ in 0..FIRST / AGENTS {
        wait_for(GONE_MAX, "replicas stay", async || Ok(cloud.instances()?.is_empty())).await?;
        let asked = agents.iter().map(async |agent| {
            let mut http = agent.http(cloud).await?;
            agent.ask(&mut http).await
        });
        let failed = join_all(asked).await.into_iter().filter_map(Result::err);
        for error in failed {
            eprintln!("a first request failed: {error:#}");
            failures += 1;
        }
    }
    report.add("first_request_failures", f64::from(failures), "");
    for agent in agents {
        agent.remove(cloud).await?;
    }
    Ok(())
}
