//! The stand-in for providers, and the alternatives that one could put in front of them.

use crate::peers::python_with;
use crate::program;
use crate::running::{Running, Signal, free_address, nginx_conf};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LITELLM: &str = "litellm[proxy]==1.106.2";
const START_MAX: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Standin {
    pub(crate) address: String,
    _process: Running,
}

impl Standin {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let program = program::build_standin()?;
        let mut command = Signal::Term.command(program);
        command.arg("--forgetful").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::new(command.spawn()?, Signal::Term);
        let output = process.output().context("the stand-in has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("the stand-in did not start")?;
        let address = said["http"].as_str().context("no address")?.to_owned();
        Ok(Self { address, _process: process })
    }

    /// Returns the path at which it behaves as the words say.
    pub(crate) fn path(&self, words: &str) -> String {
        format!("/with/{words}/v1")
    }

    pub(crate) fn base(&self, words: &str) -> String {
        format!("http://{}{}", self.address, self.path(words))
    }
}

/// nginx with a worker for each core, kept connections on both sides, no log and no buffering.
pub(crate) struct Nginx {
    pub(crate) address: String,
    _process: Running,
    _folder: TempDir,
}

impl Nginx {
    pub(crate) fn start(to: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("holm-bench-nginx-").tempdir()?;
        let address = free_address()?;
        let file = folder.path().join("nginx.conf");
        fs::write(&file, nginx_conf(&address, to, "proxy_buffering off;"))?;
        let process = Signal::Term
            .command("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .context("nginx does not start: is Debian's `nginx-light` installed?")?;
        let mut process = Running::new(process, Signal::Term);
        process.await_listening(&address, START_MAX).context("nginx")?;
        Ok(Self { address, _process: process, _folder: folder })
    }
}

/// LiteLLM's proxy from PyPI, with a worker for each core. Without a database: it checks its key
/// and counts, but stores nothing.
pub(crate) struct Litellm {
    pub(crate) address: String,
    _process: Running,
    _folder: TempDir,
}

impl Litellm {
    pub(crate) const KEY: &str = "authorization: Bearer sk-of-the-bench\r\n";

    pub(crate) async fn start(to: &Standin, model: &str, tokens: usize) -> anyhow::Result<Self> {
        let python =
            python_with("litellm-venv", &[LITELLM]).context("LiteLLM cannot be had from PyPI")?;
        let folder = tempfile::Builder::new().prefix("holm-bench-litellm-").tempdir()?;
        let base = to.base(&format!("out={tokens}"));
        let parameters =
            json!({"model": format!("openai/{model}"), "api_base": base, "api_key": "sk-x"});
        let settings = json!({
            "model_list": [{"model_name": model, "litellm_params": parameters}],
            "general_settings": {"master_key": "sk-of-the-bench"},
        });
        let file = folder.path().join("config.yaml");
        fs::write(&file, settings.to_string())?;
        let address = free_address()?;
        let (host, port) = address.split_once(':').context("no port")?;
        let workers = std::thread::available_parallelism()?.to_string();
        let process = Signal::Term
            .command(python.with_file_name("litellm"))
            .args(["--host", host, "--port", port, "--num_workers", &workers, "--config"])
            .arg(&file)
            .current_dir(folder.path())
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("HOME", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut process = Running::new(process, Signal::Term);
        process.await_listening(&address, START_MAX).context("LiteLLM")?;
        let litellm = Self { address, _process: process, _folder: folder };
        litellm.warm(model).await?;
        Ok(litellm)
    }

    /// Waits until it serves: it listens before that.
    async fn warm(&self, model: &str) -> anyhow::Result<()> {
        let question =
            super::asker::Question::new(&self.address, "/v1/chat/completions", Self::KEY);
        let question = std::rc::Rc::new(question.waits(model));
        let deadline = Instant::now() + START_MAX;
        loop {
            let asked = async { super::asker::Asker::connect(&question).await?.ask().await };
            match tokio::time::timeout(START_MAX, asked).await? {
                Ok(_) => return Ok(()),
                Err(error) => {
                    ensure!(Instant::now() < deadline, "LiteLLM does not serve: {error:#}")
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
