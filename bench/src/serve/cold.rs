//! From zero: the first answer of an agent whose replicas are gone, and ten thousand of those.

use super::agents::Agent;
use crate::cloud::{Cloud, wait_for};
use crate::report::Report;
use crate::samples::Samples;
use futures_util::future::join_all;
use std::time::{Duration, Instant};

const COLD: usize = 200;
/// Agents that are asked one after the other before waiting for all of them to be gone: nothing of
/// an agent is left some seconds after its last request.
const COLD_AGENTS: usize = 10;
/// Requests that find nothing running, of all agents together.
const FIRST: usize = 10_000;
const AGENTS: usize = 50;
/// Requests that come to one agent at the same moment.
const CALLERS: usize = 10;
const GONE_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn measure(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let agents = deploy(cloud, "cold", COLD_AGENTS).await?;
    let mut times = Samples::default();
    for _ in 0..COLD / COLD_AGENTS {
        wait_for(GONE_MAX, "a replica stays", async || Ok(cloud.instances()?.is_empty())).await?;
        for agent in &agents {
            let mut http = agent.http(cloud).await?;
            let begun = Instant::now();
            agent.ask(&mut http).await?;
            times.since(begun);
        }
    }
    report.add_times("cold", &times)?;
    remove(cloud, agents).await?;
    firsts(report, cloud).await
}

/// Asks many agents at once, each by several callers, again and again when nothing of it runs.
async fn firsts(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let agents = deploy(cloud, "first", AGENTS).await?;
    let mut failures = 0;
    for _ in 0..FIRST / AGENTS / CALLERS {
        wait_for(GONE_MAX, "replicas stay", async || Ok(cloud.instances()?.is_empty())).await?;
        let asked = agents.iter().flat_map(|agent| (0..CALLERS).map(move |_| agent));
        let asked = asked.map(async |agent| {
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
    remove(cloud, agents).await
}

async fn deploy(cloud: &Cloud, name: &str, count: usize) -> anyhow::Result<Vec<Agent>> {
    let mut agents = Vec::new();
    for number in 0..count {
        agents.push(Agent::deploy(cloud, &format!("{name}-{number}"), "x").await?);
    }
    Ok(agents)
}

async fn remove(cloud: &Cloud, agents: Vec<Agent>) -> anyhow::Result<()> {
    for agent in agents {
        agent.remove(cloud).await?;
    }
    Ok(())
}
