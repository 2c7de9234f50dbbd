//! Revisions that change while requests come: none may fail, and a canary gets its share.

use super::agents::Agent;
use crate::cloud::Cloud;
use crate::report::Report;
use anyhow::Context as _;
use futures_util::future::try_join_all;
use serde_json::json;
use std::cell::Cell;

const CALLERS: usize = 16;
const CANARY_PERCENT: u32 = 10;
const SPLIT: usize = 10_000;
const CHANGES: usize = 10;

pub(crate) async fn measure(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let agent = Agent::deploy(cloud, "changing", "a").await?;
    let rolled = under_load(&agent, cloud, async || {
        for letter in ["b", "a"].into_iter().cycle().take(CHANGES) {
            agent.put(cloud, letter, &json!({})).await?;
            agent.wait_deployed(cloud).await?;
        }
        Ok(())
    })
    .await?;
    report.add("rollout_failures", rolled as f64, "");
    let back = under_load(&agent, cloud, async || {
        for _ in 0..CHANGES {
            let revisions = agent.revisions(cloud).await?;
            let before = revisions.get(1).context("only one revision")?;
            // The letter is the one that the newest revision has, so only the active revision
            // changes.
            agent.put(cloud, "a", &json!({"active": before})).await?;
            agent.wait_deployed(cloud).await?;
            let newest = revisions.first().context("no revision")?;
            agent.put(cloud, "b", &json!({"active": newest})).await?;
            agent.wait_deployed(cloud).await?;
        }
        Ok(())
    })
    .await?;
    report.add("rollback_failures", back as f64, "");
    split(report, &agent, cloud).await?;
    agent.remove(cloud).await
}

/// Returns how many requests failed while `act` was done.
async fn under_load(
    agent: &Agent,
    cloud: &Cloud,
    act: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let (over, failures) = (Cell::new(false), Cell::new(0));
    let callers = try_join_all((0..CALLERS).map(async |_| {
        let mut http = agent.http(cloud).await?;
        while !over.get() {
            if let Err(error) = agent.ask(&mut http).await {
                eprintln!("a request failed: {error:#}");
                failures.set(failures.get() + 1);
                http = agent.http(cloud).await?;
            }
        }
        anyhow::Ok(())
    }));
    let act = async {
        let done = act().await;
        over.set(true);
        done
    };
    let (called, done) = tokio::join!(callers, act);
    called?;
    done?;
    Ok(failures.get())
}

/// Measures how far the share of a canary is from its percentage.
async fn split(report: &mut Report, agent: &Agent, cloud: &Cloud) -> anyhow::Result<()> {
    let revisions = agent.revisions(cloud).await?;
    let (newest, before) = (revisions.first().context("none")?, revisions.get(1).context("one")?);
    let revision = json!({"active": newest, "canary": before, "canaryPercent": CANARY_PERCENT});
    agent.put(cloud, "a", &revision).await?;
    agent.wait_deployed(cloud).await?;
    let mut http = agent.http(cloud).await?;
    let mut of_canary = 0;
    for _ in 0..SPLIT {
        of_canary += usize::from(agent.ask(&mut http).await? == 'b');
    }
    let percent = of_canary as f64 * 100.0 / SPLIT as f64;
    report.add("canary_percent", percent, "%");
    report.add("canary_off_percent", (percent - f64::from(CANARY_PERCENT)).abs(), "%");
    Ok(())
}
