//! How long it takes a new user, following the README: from a clean clone with nothing cached to
//! the first answer of a sandbox.

use crate::cloud::WORKSPACE;
use crate::http1::{Http1, Origin};
use crate::program::ROOT;
use crate::report::{Goal, Report};
use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

const GOAL_MIN: f64 = 10.0;
const LISTEN: &str = "127.0.0.1:8799";
const SANDBOX: &str = "first";
const SECONDS_PER_MINUTE: f64 = 60.0;

/// Measures the project's own build, as a new user runs it.
pub(crate) async fn measure(report: &mut Report) -> anyhow::Result<()> {
    println!(
        "`make run` in a clean clone of what is committed, with an empty home, until a sandbox"
    );
    println!("has answered a command.");
    let begun = Instant::now();
    let mut fresh = Fresh::start()?;
    let seen = fresh.first_start(begun)?;
    let headers = format!("authorization: Bearer {}\r\nservice-version: 2026-04-28\r\n", seen.key);
    let origin = Rc::new(Origin { address: LISTEN.to_owned(), headers });
    let mut http = Http1::connect(&origin).await?;
    let wish = json!({"metadata": {"name": SANDBOX}, "spec": {"runtime": {"memory": 512}}});
    http.ask("POST", "/v0/sandboxes", &wish.to_string()).await?;
    let order = json!({"command": "uname -a", "waitForCompletion": true}).to_string();
    let path = format!("/{WORKSPACE}/sandboxes/{SANDBOX}/process");
    let answer: serde_json::Value = serde_json::from_slice(http.ask("POST", &path, &order).await?)?;
    ensure!(answer["exitCode"] == 0, "the command ended with {answer}");
    let minutes = |time: Duration| time.as_secs_f64() / SECONDS_PER_MINUTE;
    report.add("build_min", minutes(begun.elapsed()), "min");
    report.set_goal("build_min", Goal::AtMost(GOAL_MIN));
    report.add("compile_min", minutes(seen.compiled), "min");
    http.ask("DELETE", &format!("/v0/sandboxes/{SANDBOX}"), "").await?;
    fresh.end()
}

/// `make run` in a clean clone.
struct Fresh {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// What the first start prints.
struct Greeting {
    key: String,
    compiled: Duration,
}

impl Fresh {
    fn start() -> anyhow::Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=TERM", "--", "tools/test-fresh", "make", "run"]);
        command.arg(format!("LISTEN={LISTEN}")).env("HOLM_NODE__SUBNET", "10.96.0.0/16");
        command.current_dir(ROOT).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("make has no output")?;
        Ok(Self { process, output: BufReader::new(output) })
    }

    /// Prints the output and finds the key in it.
    fn first_start(&mut self, begun: Instant) -> anyhow::Result<Greeting> {
        let mut compiled = Duration::ZERO;
        for line in (&mut self.output).lines() {
            let line = line?;
            if let Some(key) = line.trim().strip_prefix("API key") {
                return Ok(Greeting { key: key.trim().to_owned(), compiled });
            }
            eprintln!("{line}");
            if line.contains("Image of sandboxes") {
                compiled = begun.elapsed();
            }
        }
        bail!("`make run` ended before the server was there")
    }

    /// Asks the server to end; the clone is removed afterwards.
    fn end(&mut self) -> anyhow::Result<()> {
        let found = Command::new("pkill")
            .args(["-TERM", "-f", &format!("^target/release/holm up .*{LISTEN}")])
            .status()?;
        ensure!(found.success(), "the server was not found");
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
