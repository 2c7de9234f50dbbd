//! Agents as their owners deploy and call them.

use crate::cloud::{Cloud, WORKSPACE, wait_for};
use crate::http1::Http1;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) const IMAGE: &str = "holm-bench/serve";
/// Where deployments listen.
pub(crate) const PORT: u16 = 8080;
const READY_MAX: Duration = Duration::from_secs(120);
const MEMORY_MB: u32 = 256;

pub(crate) struct Agent {
    name: String,
}

impl Agent {
    /// Creates an agent that answers with a letter, and waits until it is deployed.
    pub(crate) async fn deploy(cloud: &Cloud, name: &str, letter: &str) -> anyhow::Result<Self> {
        let agent = Self { name: name.to_owned() };
        let body = agent.wish(letter, &json!({})).to_string();
        let mut http = agent.http(cloud).await?;
        http.ask("POST", "/v0/agents", &body).await?;
        agent.wait_deployed(cloud).await?;
        Ok(agent)
    }

    /// Creates an agent from a folder, and returns the time from the upload until it was deployed.
    pub(crate) async fn build(
        cloud: &Cloud,
        name: &str,
        archive: &[u8],
    ) -> anyhow::Result<(Self, Duration)> {
        let agent = Self { name: name.to_owned() };
        let time = agent.upload(cloud, "POST", "/v0/agents", archive).await?;
        Ok((agent, time))
    }

    /// Does the same for an existing agent.
    pub(crate) async fn build_again(
        &self,
        cloud: &Cloud,
        archive: &[u8],
    ) -> anyhow::Result<Duration> {
        self.upload(cloud, "PUT", &self.address(), archive).await
    }

    async fn upload(
        &self,
        cloud: &Cloud,
        method: &str,
        path: &str,
        archive: &[u8],
    ) -> anyhow::Result<Duration> {
        let mut http = self.http(cloud).await?;
        let runtime =
            json!({"memory": MEMORY_MB, "minScale": 0, "maxScale": 1, "generation": "mk2"});
        let wish = json!({"metadata": {"name": self.name}, "spec": {"runtime": runtime}});
        http.ask(method, &format!("{path}?upload=true"), &wish.to_string()).await?;
        let url = http.header("x-blaxel-upload-url")?.to_owned();
        let (_, upload) = url.split_once("/v0/").context("an address elsewhere")?;
        let begun = Instant::now();
        http.send("PUT", &format!("/v0/{upload}"), "application/x-tar", archive).await?;
        self.wait_deployed(cloud).await?;
        Ok(begun.elapsed())
    }

    /// Replaces what it runs or which revisions serve, and returns it as it is then.
    pub(crate) async fn put(
        &self,
        cloud: &Cloud,
        letter: &str,
        revision: &Value,
    ) -> anyhow::Result<Value> {
        let mut http = self.http(cloud).await?;
        let (path, body) = (self.address(), self.wish(letter, revision).to_string());
        Ok(serde_json::from_slice(http.ask("PUT", &path, &body).await?)?)
    }

    fn wish(&self, letter: &str, revision: &Value) -> Value {
        let envs = json!([{"name": "LETTER", "value": letter}]);
        let runtime = json!({
            "image": IMAGE, "memory": MEMORY_MB, "minScale": 0, "maxScale": 1, "envs": envs,
            "generation": "mk2",
        });
        json!({
            "metadata": {"name": self.name},
            "spec": {"runtime": runtime, "revision": revision},
        })
    }

    pub(crate) async fn wait_deployed(&self, cloud: &Cloud) -> anyhow::Result<()> {
        let mut http = self.http(cloud).await?;
        let otherwise = format!("{} is not deployed", self.name);
        wait_for(READY_MAX, &otherwise, async || {
            let body = http.ask("GET", &self.address(), "").await?;
            let agent: Value = serde_json::from_slice(body)?;
            ensure!(agent["status"] != "FAILED", "{agent}");
            Ok(agent["status"] == "DEPLOYED")
        })
        .await
    }

    /// Returns the ids of its revisions, newest first.
    pub(crate) async fn revisions(&self, cloud: &Cloud) -> anyhow::Result<Vec<String>> {
        let mut http = self.http(cloud).await?;
        let body = http.ask("GET", &format!("{}/revisions", self.address()), "").await?;
        let all: Vec<Value> = serde_json::from_slice(body)?;
        all.iter().map(|one| Ok(one["id"].as_str().context("no id")?.to_owned())).collect()
    }

    pub(crate) async fn remove(&self, cloud: &Cloud) -> anyhow::Result<()> {
        let mut http = self.http(cloud).await?;
        http.ask("DELETE", &self.address(), "").await.map(drop)
    }

    /// Opens a connection for requests to it and about it.
    pub(crate) async fn http(&self, cloud: &Cloud) -> anyhow::Result<Http1> {
        Http1::connect(cloud.origin()).await
    }

    pub(crate) fn path(&self) -> String {
        format!("/{WORKSPACE}/agents/{}", self.name)
    }

    fn address(&self) -> String {
        format!("/v0/agents/{}", self.name)
    }

    /// Sends it one request, and returns the letter that it answers with.
    pub(crate) async fn ask(&self, http: &mut Http1) -> anyhow::Result<char> {
        let body = http.ask("GET", &self.path(), "").await?;
        body.first().map(|byte| char::from(*byte)).context("an empty answer")
    }
}
