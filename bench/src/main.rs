//! Measurements of what users wait and pay for, beside alternatives that they could use: `make
//! bench NAME=api`.
//!
//! `cargo run --release -p bench -- api sqlite` measures one part only, for those who work on it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "people read what is measured, as it goes"
)]

mod acts;
mod api;
mod build;
mod cloud;
mod density;
mod egress;
mod etcd;
mod gateway;
mod grpc;
mod http1;
mod jobs;
mod load;
mod machine;
mod metrics;
mod models;
mod peers;
mod program;
mod report;
mod running;
mod samples;
mod sandbox;
mod serve;
mod storage;
mod wakes;

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, measure(&words))
}

async fn measure(words: &[String]) -> anyhow::Result<()> {
    match words.split_first().map(|(name, parts)| (name.as_str(), parts)) {
        Some(("api", parts)) => api::run(parts).await,
        Some(("sandbox", [])) => sandbox::run().await,
        Some(("gateway", [])) => gateway::run().await,
        Some(("density", [])) => density::run().await,
        Some(("jobs", parts)) => jobs::run(parts).await,
        Some(("wakes", [])) => wakes::run().await,
        Some(("egress", [])) => egress::run().await,
        Some(("serve", parts)) => serve::run(parts).await,
        Some(("build", parts)) => build::run(parts).await,
        Some(("storage", parts)) => storage::run(parts).await,
        Some(("models", [])) => models::run().await,
        Some(("metrics", parts)) => metrics::run(parts).await,
        _ => bail!(
            "which measurement? There are: api [PART ...], sandbox, gateway, density, wakes, egress, models, jobs [PART ...], \
             metrics [PART ...], serve [PART ...], build [PART ...], storage [PART ...]"
        ),
    }
}
