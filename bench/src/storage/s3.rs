//! A drive through its S3 interface, beside SeaweedFS: once with its defaults and once flushing
//! before it answers, which Holm always does. The same caller puts and gets the same objects, and
//! compares what it gets.

use super::TIMEOUT;
use super::seaweed::Seaweed;
use super::signed::{Body, Signer};
use crate::cloud::{Client, Cloud, wait_for};
use crate::http1::{Http1, Origin};
use crate::report::{Goal, Report};
use crate::samples::median;
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

const DRIVE: &str = "objects";
const OURS: &str = "Holm";
const PEERS: [&str; 2] = ["SeaweedFS", "SeaweedFS with fsync"];
const ROUNDS: usize = 3;
const CALLERS: usize = 8;
/// Small objects of each caller and round.
const SMALL_COUNT: usize = 200;
const SMALL_BYTES: usize = 4 << 10;
/// Large objects of a round, one after the other.
const LARGE_COUNT: usize = 3;
const LARGE_BYTES: usize = 64 << 20;
const METRICS: [(&str, &str); 4] = [
    ("s3_put_4kib", "1/s"),
    ("s3_get_4kib", "1/s"),
    ("s3_put_64mib", "MB/s"),
    ("s3_get_64mib", "MB/s"),
];

/// A bucket, and the credentials for it.
struct Bucket {
    name: &'static str,
    origin: Rc<Origin>,
    path: String,
    signer: Signer,
}

pub(crate) async fn measure(
    report: &mut Report,
    cloud: &Cloud,
    place: &Path,
) -> anyhow::Result<()> {
    let ours = make(&mut cloud.client().await?, cloud).await?;
    let (plain, flushing) = (Seaweed::start(place, false)?, Seaweed::start(place, true)?);
    println!("seaweedfs  {}", plain.version());
    let peers = PEERS.into_iter().zip([&plain, &flushing]);
    let mut buckets = vec![ours];
    for (name, server) in peers {
        buckets.push(of_peer(name, server).await?);
    }
    let (small, large) = (body(SMALL_BYTES), body(LARGE_BYTES));
    let mut seen = vec![<[Vec<f64>; METRICS.len()]>::default(); buckets.len()];
    for round in 0..ROUNDS {
        for (bucket, seen) in buckets.iter().zip(&mut seen) {
            for (values, value) in seen.iter_mut().zip(bucket.round(round, &small, &large).await?) {
                values.push(value);
            }
        }
    }
    for (at, (metric, unit)) in METRICS.into_iter().enumerate() {
        report.add(metric, median(&seen[0][at]), unit);
        for (bucket, seen) in buckets.iter().zip(&seen).skip(1) {
            report.set_peer(metric, bucket.name, median(&seen[at]));
        }
        for (peer, suffix) in PEERS.into_iter().zip(["seaweedfs", "seaweedfs_fsync"]) {
            let ratio = format!("{metric}_per_{suffix}");
            report.add_ratio_to(&ratio, metric, peer, Goal::AtLeast(1.0));
        }
    }
    let mut client = cloud.client().await?;
    let removed =
        async || Ok(client.ask("DELETE", "/v0/drives/objects", &Value::Null).await.is_ok());
    wait_for(TIMEOUT, "the drive is not free", removed).await
}

fn body(bytes: usize) -> Body {
    let mut content = vec![0; bytes];
    fastrand::fill(&mut content);
    Body::new(content)
}

/// Creates a drive, and a key of a service account, which may sign.
async fn make(client: &mut Client, cloud: &Cloud) -> anyhow::Result<Bucket> {
    let drive = json!({"metadata": {"name": DRIVE}, "spec": {}});
    let made = client.ask("POST", "/v0/drives", &drive).await?;
    let url = made["state"]["s3Url"].as_str().context("a drive without an S3 address")?;
    let path = url.splitn(4, '/').nth(3).context("an address without a path")?;
    let robot = client.ask("POST", "/v0/service_accounts", &json!({"name": "bench"})).await?;
    let id = robot["client_id"].as_str().context("an account without id")?;
    client.ask("PUT", &format!("/v0/users/{id}"), &json!({"role": "admin"})).await?;
    let keys = format!("/v0/service_accounts/{id}/api_keys");
    let key = client.ask("POST", &keys, &json!({"name": "bench"})).await?;
    let text = |name: &str| key[name].as_str().map(str::to_owned).context("a key without it");
    let signer = Signer { key_id: text("id")?, secret: text("apiKey")? };
    let address = cloud.origin().address.clone();
    let origin = Rc::new(Origin { address, headers: String::new() });
    Ok(Bucket { name: OURS, origin, path: format!("/{path}"), signer })
}

async fn of_peer(name: &'static str, server: &Seaweed) -> anyhow::Result<Bucket> {
    let origin = Rc::new(Origin { address: server.address.clone(), headers: String::new() });
    let bucket = Bucket { name, origin, path: "/bench".to_owned(), signer: server.signer() };
    let mut http = Http1::connect(&bucket.origin).await?;
    let empty = Body::new(Vec::new());
    let path = bucket.path.clone();
    bucket.send(&mut http, "PUT", &path, &empty).await?;
    Ok(bucket)
}

impl Bucket {
    async fn send<'h>(
        &self,
        http: &'h mut Http1,
        method: &str,
        path: &str,
        body: &Body,
    ) -> anyhow::Result<&'h [u8]> {
        let headers = self.signer.headers(method, &self.origin.address, path, body)?;
        http.send_with(method, path, &headers, &body.bytes).await
    }

    /// Measures one round, and returns the value of each metric in their order.
    async fn round(&self, round: usize, small: &Body, large: &Body) -> anyhow::Result<[f64; 4]> {
        let count = (CALLERS * SMALL_COUNT) as f64;
        let megabytes = (LARGE_COUNT * LARGE_BYTES) as f64 / 1e6;
        Ok([
            count / self.small(round, "PUT", small).await?,
            count / self.small(round, "GET", small).await?,
            megabytes / self.large(round, "PUT", large).await?,
            megabytes / self.large(round, "GET", large).await?,
        ])
    }

    /// Returns the seconds in which several callers put or get all small objects.
    async fn small(&self, round: usize, method: &str, body: &Body) -> anyhow::Result<f64> {
        let mut connections = Vec::new();
        for _ in 0..CALLERS {
            connections.push(Http1::connect(&self.origin).await?);
        }
        let begun = Instant::now();
        let each = connections.iter_mut().enumerate().map(|(caller, http)| async move {
            for number in 0..SMALL_COUNT {
                let path = format!("{}/small/{round}-{caller}-{number}", self.path);
                self.act(http, method, &path, body).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(each).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    async fn large(&self, round: usize, method: &str, body: &Body) -> anyhow::Result<f64> {
        let mut http = Http1::connect(&self.origin).await?;
        let begun = Instant::now();
        for number in 0..LARGE_COUNT {
            let path = format!("{}/large/{round}-{number}", self.path);
            self.act(&mut http, method, &path, body).await?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    async fn act(
        &self,
        http: &mut Http1,
        method: &str,
        path: &str,
        body: &Body,
    ) -> anyhow::Result<()> {
        if method == "PUT" {
            return self.send(http, method, path, body).await.map(drop);
        }
        let got = self.send(http, method, path, &Body::new(Vec::new())).await?;
        ensure!(got == body.bytes, "{} answers with another {path}", self.name);
        Ok(())
    }
}
