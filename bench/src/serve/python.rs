//! The first answer of a small Python server from zero, beside `podman run` of the same files.

use super::agents::Agent;
use crate::cloud::{Cloud, wait_for};
use crate::http1::{Http1, Origin};
use crate::peers::{Peers, Root, finish};
use crate::report::{Goal, Report};
use crate::samples::Samples;
use anyhow::ensure;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// It has Debian's Python.
pub(crate) const IMAGE: &str = "holm/jupyter-server";
const ROUNDS: usize = 20;
const GONE_MAX: Duration = Duration::from_secs(30);
const ANSWER_MAX: Duration = Duration::from_secs(30);
const PEER_PORT: u16 = 18_991;
const LOOK_EVERY: Duration = Duration::from_millis(1);
const SERVER: &str = r#"
import http.server, os

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "1")
        self.end_headers()
        self.wfile.write(b"x")

    def log_message(self, *_):
        pass

http.server.HTTPServer(("", int(os.environ["PORT"])), Answer).serve_forever()
"#;

pub(crate) async fn measure(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let place = tempfile::tempdir()?;
    let archive = archive(place.path())?;
    let (agent, _) = Agent::build(cloud, "python", &archive).await?;
    let peer = Peers::prepare(Root::mount(cloud.images(), IMAGE)?)?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        wait_for(GONE_MAX, "a replica stays", async || Ok(cloud.instances()?.is_empty())).await?;
        let mut http = agent.http(cloud).await?;
        let begun = Instant::now();
        agent.ask(&mut http).await?;
        ours.since(begun);
        theirs.add(podman(&peer).await?);
    }
    report.add_times("python_cold", &ours)?;
    report.set_peer("python_cold_p50_ms", "podman run", theirs.percentile_ms(50)?);
    let ratio = ours.percentile_ms(50)? / theirs.percentile_ms(50)?;
    report.add("python_cold_per_podman", ratio, "x");
    report.set_goal("python_cold_per_podman", Goal::AtMost(1.0));
    agent.remove(cloud).await
}

fn archive(place: &Path) -> anyhow::Result<Vec<u8>> {
    let (folder, archive) = (place.join("folder"), place.join("folder.tar"));
    fs::create_dir(&folder)?;
    fs::write(folder.join("server.py"), SERVER)?;
    let command = r#"["/usr/bin/python3", "/app/server.py"]"#;
    let dockerfile = format!("FROM {IMAGE}\nCOPY server.py /app/\nENTRYPOINT {command}\nCMD []\n");
    fs::write(folder.join("Dockerfile"), dockerfile)?;
    crate::build::pack(&folder, &archive)?;
    Ok(fs::read(archive)?)
}

/// Measures from the start of the container to the first answer, in the network of this machine.
async fn podman(peers: &Peers) -> anyhow::Result<Duration> {
    let port = format!("PORT={PEER_PORT}");
    let mut command = peers.podman_serve(&["--env", &port], &["/usr/bin/python3", "-c", SERVER]);
    let begun = Instant::now();
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let answered = first_answer(&mut running).await;
    let time = begun.elapsed();
    finish(&mut peers.podman_stop())?;
    running.wait()?;
    answered.map(|()| time)
}

async fn first_answer(running: &mut Child) -> anyhow::Result<()> {
    let origin =
        Rc::new(Origin { address: format!("127.0.0.1:{PEER_PORT}"), headers: String::new() });
    let deadline = Instant::now() + ANSWER_MAX;
    loop {
        if let Ok(mut http) = Http1::connect(&origin).await {
            return http.ask("GET", "/", "").await.map(drop);
        }
        ensure!(running.try_wait()?.is_none(), "podman run has ended");
        ensure!(Instant::now() < deadline, "what podman runs does not answer");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
