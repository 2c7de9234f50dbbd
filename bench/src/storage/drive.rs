//! A drive as a sandbox sees it, beside Debian's NFS on this machine and beside a plain folder of
//! the same disk. All are used by the same program, which compares what it reads with what it
//! wrote.

use super::{TIMEOUT, make_sandbox, quoted};
use crate::cloud::{Client, Cloud, inside, wait_for};
use crate::report::{Goal, Report};
use crate::samples::median;
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const NAME: &str = "drive";
const PLACE: &str = "/mnt/drive";
const FILES: u32 = 2_000;
const MEGABYTES: u32 = 256;
const ROUNDS: usize = 3;
const WORK: &str = include_str!("drive.py");
const NFS: &str = include_str!("nfs.py");
const NFS_NAME: &str = "NFS";
const FOLDER_NAME: &str = "a bare folder";
const KINDS: [(&str, &str); 5] = [
    ("create", "1/s"),
    ("stat", "1/s"),
    ("read", "1/s"),
    ("sequential_write", "MB/s"),
    ("sequential_read", "MB/s"),
];

/// What one round reached, by kind.
type Reached = BTreeMap<String, f64>;

pub(crate) async fn measure(
    report: &mut Report,
    cloud: &Cloud,
    place: &Path,
) -> anyhow::Result<()> {
    mount(&mut cloud.client().await?).await?;
    let mut nfs = match Nfs::start(place) {
        Ok(nfs) => Some(nfs),
        Err(error) => {
            report.note(format!("NFS cannot be had on this machine: {error:#}"));
            None
        }
    };
    let (mut drive, mut folder, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let script = format!("python3 -c '{}' {FILES} {MEGABYTES} {PLACE}", quoted(WORK));
        // A new connection: the server closes those that are idle while others are measured.
        drive.push(reached(&cloud.client().await?.run(NAME, &script).await?)?);
        folder.push(reached(&on_machine(place)?)?);
        if let Some(nfs) = &mut nfs {
            theirs.push(nfs.work()?);
        }
    }
    if let Some(nfs) = nfs {
        report.note(format!("The client of NFS is {}.", nfs.client.trim()));
    }
    for (kind, unit) in KINDS {
        let metric = format!("drive_{kind}");
        report.add(metric.clone(), of_kind(&drive, kind)?, unit);
        report.set_peer(&metric, FOLDER_NAME, of_kind(&folder, kind)?);
        if !theirs.is_empty() {
            report.set_peer(&metric, NFS_NAME, of_kind(&theirs, kind)?);
        }
        let ratio = format!("drive_{kind}_per_nfs");
        report.add_ratio_to(&ratio, &metric, NFS_NAME, Goal::AtLeast(1.0));
    }
    remove(&mut cloud.client().await?).await
}

async fn mount(client: &mut Client) -> anyhow::Result<()> {
    let drive = json!({"metadata": {"name": NAME}, "spec": {}});
    client.ask("POST", "/v0/drives", &drive).await?;
    make_sandbox(client, NAME, &Value::Null).await?;
    let mount = json!({"driveName": NAME, "mountPath": PLACE});
    client.ask("POST", &inside(NAME, "/drives/mount"), &mount).await.map(drop)
}

async fn remove(client: &mut Client) -> anyhow::Result<()> {
    client.remove(NAME).await?;
    // It becomes free a moment after the sandbox is no longer listed.
    let removed = async || Ok(client.ask("DELETE", "/v0/drives/drive", &Value::Null).await.is_ok());
    wait_for(TIMEOUT, "the drive is not free", removed).await
}

fn on_machine(place: &Path) -> anyhow::Result<String> {
    let numbers = [FILES, MEGABYTES].map(|number| number.to_string());
    let output = Command::new("python3").args(["-c", WORK]).args(numbers).arg(place).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the bare folder cannot be measured: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

fn reached(text: &str) -> anyhow::Result<Reached> {
    serde_json::from_str(text).with_context(|| format!("`{text}` is no measurement"))
}

fn of_kind(rounds: &[Reached], kind: &str) -> anyhow::Result<f64> {
    let values: Option<Vec<f64>> = rounds.iter().map(|round| round.get(kind).copied()).collect();
    Ok(median(&values.with_context(|| format!("{kind} was not measured"))?))
}

/// Debian's nfs-ganesha and a client of it. Both end when this is dropped.
struct Nfs {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Name of the client.
    client: String,
}

impl Nfs {
    fn start(place: &Path) -> anyhow::Result<Self> {
        let own = place.join("nfs");
        let exported = own.join("exported");
        std::fs::create_dir_all(&exported)?;
        let mut process = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--", "python3", "-c"])
            .arg(format!("{WORK}\n{NFS}"))
            .args([&own, &exported])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take().context("it listens")?;
        let answers = BufReader::new(process.stdout.take().context("it answers")?);
        let mut nfs = Self { process, orders, answers, client: String::new() };
        nfs.client = nfs.line().context("nfs-ganesha does not serve")?;
        Ok(nfs)
    }

    fn work(&mut self) -> anyhow::Result<Reached> {
        writeln!(self.orders, "{FILES} {MEGABYTES}")?;
        reached(&self.line()?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("what works with it ended");
        }
        Ok(line)
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        // Both fail only when it has ended already. It is the first process of a namespace, which
        // ends with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
