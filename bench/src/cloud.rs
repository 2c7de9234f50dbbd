//! A Holm that runs sandboxes, and callers that use them as clients do.

use crate::http1::{Http1, JSON, Origin};
use crate::program::{self, Parts};
use anyhow::{Context as _, anyhow, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testing::{Holm, Start};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) const IMAGE: &str = "holm/base";
const MEMORY_MB: u32 = 2048;
pub(crate) const WORKSPACE: &str = "main";
/// Different from those of a server that may run on the same machine.
const SUBNET: &str = "10.97.0.0/16";
const FIRST_UID: &str = "1700000000";
/// Callers that delete at the same time.
const REMOVERS: usize = 16;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PAGE_MAX: usize = 200;
const BOUNDARY: &str = "holm-bench-7f3a91";

pub(crate) struct Cloud {
    process: Holm,
    program: PathBuf,
    database: Option<String>,
    settings: Vec<(&'static str, String)>,
    data: TempDir,
    images: PathBuf,
    origin: Rc<Origin>,
}

/// How a Holm is started, besides what is always the same.
pub(crate) struct Setting {
    pub(crate) program: PathBuf,
    pub(crate) parts: Parts,
    /// PostgreSQL's address; SQLite when absent.
    pub(crate) database: Option<String>,
    pub(crate) more: Vec<(&'static str, String)>,
}

/// Starts a Holm as users run it, except for the time until sandboxes sleep, and works with it.
pub(crate) async fn with_cloud<T>(
    standby: Duration,
    work: impl AsyncFnOnce(&mut Cloud) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let program = program::build()?;
    let parts = Parts::find(&program, IMAGE)?;
    let more = vec![("HOLM_GATEWAY__STANDBY", format!("{}ms", standby.as_millis()))];
    with_setting(Setting { program, parts, database: None, more }, work).await
}

/// Starts a Holm, works with it, and leaves nothing of it behind, however the work ends.
pub(crate) async fn with_setting<T>(
    setting: Setting,
    work: impl AsyncFnOnce(&mut Cloud) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut cloud = Cloud::start(setting)?;
    let mut asked_to_end = signal(SignalKind::terminate())?;
    let done = tokio::select! {
        done = work(&mut cloud) => done,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
        _ = asked_to_end.recv() => Err(anyhow!("asked to end")),
    };
    let ended = cloud.end().await;
    let done = done?;
    ended.map(|()| done)
}

fn start(
    program: &Path,
    data: &Path,
    database: Option<&str>,
    settings: &[(&str, String)],
) -> anyhow::Result<Holm> {
    let (program, database) = (program.to_owned(), database.map(str::to_owned));
    Ok(Start { program, data, database, settings: settings.to_vec() }.run()?)
}

impl Cloud {
    fn start(setting: Setting) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("holm-bench-").tempdir()?;
        let Setting { program, parts: Parts { guest, images }, database, more } = setting;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut settings = vec![
            ("HOLM_SERVER__ROLES", r#"["api", "gateway", "node"]"#.to_owned()),
            ("HOLM_NODE__GUEST", text(&guest)),
            ("HOLM_IMAGES__FOLDER", text(&images)),
            ("HOLM_NODE__SUBNET", SUBNET.to_owned()),
            ("HOLM_NODE__FIRST_UID", FIRST_UID.to_owned()),
            // Their sizes count in full, although hardly any of it is written.
            ("HOLM_NODE__VOLUME_MB", "400000".to_owned()),
        ];
        settings.extend(more);
        let process = start(&program, data.path(), database.as_deref(), &settings)?;
        let key = process.key.as_deref().context("the first start shows a key")?;
        let headers = format!("authorization: Bearer {key}\r\nservice-version: 2026-04-28\r\n");
        let origin = Rc::new(Origin { address: process.address.clone(), headers });
        Ok(Self { process, program, database, settings, data, images, origin })
    }

    /// Kills the server. Its sandboxes live on.
    pub(crate) fn stop(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on what it left.
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        let database = self.database.as_deref();
        self.process = start(&self.program, self.data.path(), database, &self.settings)?;
        let address = self.process.address.clone();
        self.origin = Rc::new(Origin { address, ..(*self.origin).clone() });
        Ok(())
    }

    pub(crate) fn origin(&self) -> &Rc<Origin> {
        &self.origin
    }

    pub(crate) fn images(&self) -> &Path {
        &self.images
    }

    pub(crate) fn process(&self) -> &Holm {
        &self.process
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client { http: Http1::connect(&self.origin).await? })
    }

    pub(crate) async fn clients(&self, count: usize) -> anyhow::Result<Vec<Client>> {
        try_join_all((0..count).map(|_| self.client())).await
    }

    /// Returns the control group of each existing instance.
    pub(crate) fn instances(&self) -> anyhow::Result<Vec<PathBuf>> {
        Ok(testing::machine::groups(self.data.path())?)
    }

    /// Counts sleeping sandboxes. Uses a connection of its own, since the server closes idle ones.
    pub(crate) async fn asleep(&self) -> anyhow::Result<usize> {
        let states = self.client().await?.states().await?;
        Ok(states.iter().filter(|(_, state)| state == "STANDBY").count())
    }

    /// Deletes all sandboxes at once, and waits until nothing runs for them any more.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let names: Vec<String> =
            self.client().await?.states().await?.into_iter().map(|(name, _)| name).collect();
        let mut clients = self.clients(REMOVERS).await?;
        let each = clients.iter_mut().enumerate().map(|(first, client)| {
            let mine = names.iter().skip(first).step_by(REMOVERS);
            async move {
                for name in mine {
                    client.remove(name).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(each).await?;
        self.client().await?.remove_agents().await?;
        // An instance ends after its sandbox is no longer listed.
        wait_for(Duration::from_secs(60), "instances are left", async || {
            Ok(self.instances()?.is_empty())
        })
        .await
    }

    async fn end(mut self) -> anyhow::Result<()> {
        let cleared = self.clear().await;
        self.process.end()?;
        cleared
    }
}

/// Waits until `so` holds, or fails with `otherwise` after `timeout`.
pub(crate) async fn wait_for(
    timeout: Duration,
    otherwise: &str,
    mut so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    while !so().await? {
        ensure!(Instant::now() < deadline, "after {} s {otherwise}", timeout.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// One connection, with what clients do over it.
pub(crate) struct Client {
    http: Http1,
}

/// Returns the path of something in a sandbox.
pub(crate) fn inside(name: &str, path: &str) -> String {
    format!("/{WORKSPACE}/sandboxes/{name}{path}")
}

impl Client {
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Ok(serde_json::from_slice(self.http.ask(method, path, &body).await?)?)
    }

    pub(crate) async fn make(&mut self, name: &str) -> anyhow::Result<()> {
        let runtime = json!({"generation": "mk2", "image": IMAGE, "memory": MEMORY_MB});
        let wish =
            json!({"metadata": {"name": name}, "spec": {"region": "local", "runtime": runtime}});
        self.http.ask("POST", "/v0/sandboxes", &wish.to_string()).await.map(drop)
    }

    pub(crate) async fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.http.ask("DELETE", &format!("/v0/sandboxes/{name}"), "").await.map(drop)
    }

    /// Runs a command to its end and returns its output; any exit code but 0 is an error.
    pub(crate) async fn run(&mut self, name: &str, command: &str) -> anyhow::Result<String> {
        let order = json!({"command": command, "waitForCompletion": true}).to_string();
        let process: Value = serde_json::from_slice(
            self.http.ask("POST", &inside(name, "/process"), &order).await?,
        )?;
        ensure!(process["exitCode"] == 0, "`{command}` ended with {process}");
        Ok(process["stdout"].as_str().unwrap_or_default().to_owned())
    }

    /// Starts a command that keeps running.
    pub(crate) async fn begin(
        &mut self,
        name: &str,
        command: &str,
        port: u16,
    ) -> anyhow::Result<()> {
        let order =
            json!({"command": command, "keepAlive": true, "waitForPorts": [port]}).to_string();
        self.http.ask("POST", &inside(name, "/process"), &order).await.map(drop)
    }

    /// Sends a request that costs the sandbox next to nothing.
    pub(crate) async fn knock(&mut self, name: &str) -> anyhow::Result<()> {
        self.http.ask("GET", &inside(name, "/process"), "").await.map(drop)
    }

    pub(crate) async fn write(
        &mut self,
        name: &str,
        path: &str,
        form: &Form,
    ) -> anyhow::Result<()> {
        let at = inside(name, &format!("/filesystem/{path}"));
        self.http.send("PUT", &at, &Form::content_type(), &form.0).await.map(drop)
    }

    pub(crate) async fn read(&mut self, name: &str, path: &str) -> anyhow::Result<&[u8]> {
        self.http
            .send("GET", &inside(name, &format!("/filesystem/{path}?download=true")), JSON, b"")
            .await
    }

    /// Removes agents that an interrupted measurement has left behind.
    async fn remove_agents(&mut self) -> anyhow::Result<()> {
        let path = format!("/v0/agents?limit={PAGE_MAX}");
        let page: Value = serde_json::from_slice(self.http.ask("GET", &path, "").await?)?;
        for agent in page["data"].as_array().context("a page without data")? {
            let name = agent["metadata"]["name"].as_str().context("no name")?;
            self.http.ask("DELETE", &format!("/v0/agents/{name}"), "").await?;
        }
        Ok(())
    }

    /// Returns all sandboxes and whether they run or sleep. Asking does not wake them.
    pub(crate) async fn states(&mut self) -> anyhow::Result<Vec<(String, String)>> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v0/sandboxes?limit={PAGE_MAX}&sort=name:asc&cursor={cursor}");
            let page: Value = serde_json::from_slice(self.http.ask("GET", &path, "").await?)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let listed = page["data"].as_array().context("a page without data")?;
            all.extend(
                listed
                    .iter()
                    .map(|sandbox| (text(&sandbox["metadata"]["name"]), text(&sandbox["state"]))),
            );
            match page["meta"]["nextCursor"].as_str() {
                Some(next) if !next.is_empty() => cursor = next.to_owned(),
                _ => return Ok(all),
            }
        }
    }

    /// Returns the value of one line of the server's metrics.
    pub(crate) async fn metric(&mut self, name: &str) -> anyhow::Result<f64> {
        let text =
            String::from_utf8_lossy(self.http.ask("GET", "/metrics", "").await?).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Ok(value.unwrap_or_default())
    }
}

/// An uploaded file, as browsers and the published clients send it.
pub(crate) struct Form(Vec<u8>);

impl Form {
    pub(crate) fn new(file: &[u8]) -> Self {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"permissions\"\r\n\r\n0644\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        Self([head.as_bytes(), file, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat())
    }

    fn content_type() -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }
}
