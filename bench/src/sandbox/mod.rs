//! Sandboxes as a client sees them: created, used, woken, a hundred at once, and their files;
//! beside other ways to run a command.

mod files;

use crate::cloud::{Client, Cloud, IMAGE, wait_for, with_cloud};
use crate::machine;
use crate::peers::{Peer, Peers, Root};
use crate::program;
use crate::report::{Goal, Report};
use crate::samples::Samples;
use anyhow::Context as _;
use futures_util::future::try_join_all;
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;
const WARM_UP: usize = 10;
/// Between two acts of a round. Without it one act would benefit from what the kernel has just done
/// for the other.
const PAUSE: Duration = Duration::from_millis(30);
/// How soon sandboxes sleep here; the measurement waits for that each time.
const STANDBY: Duration = Duration::from_secs(1);
const SLEEPERS: usize = 40;
const NIGHTS: usize = 10;
const BURST: usize = 100;
const BURSTS: usize = 5;

pub(crate) async fn run() -> anyhow::Result<()> {
    println!(
        "One caller over one kept connection, with an API key, on the same machine; {ROUNDS} rounds in turns with"
    );
    println!(
        "the peers, {} ms between any two acts. Image {IMAGE}, 2048 MB of memory.",
        PAUSE.as_millis()
    );
    for (program, argument) in
        [("runc", "--version"), ("bwrap", "--version"), ("podman", "--version")]
    {
        println!(
            "{program:<10} {}",
            machine::said(program, &[argument]).lines().next().unwrap_or_default()
        );
    }
    program::prepare(IMAGE)?;
    let report = machine::begin(&std::env::temp_dir()).await?;
    let mut report = with_cloud(STANDBY, async |cloud| measure(report, cloud).await).await?;
    let goals = [
        ("mk2_create_p50_ms", 5.0),
        ("mk2_create_p99_ms", 15.0),
        ("mk2_exec_p50_ms", 1.5),
        ("mk2_exec_p99_ms", 4.0),
        ("mk2_wake_p50_ms", 2.0),
        ("mk2_wake_p99_ms", 10.0),
        ("mk2_burst100_ms", 700.0),
    ];
    goals.into_iter().for_each(|(metric, most)| report.set_goal(metric, Goal::AtMost(most)));
    report.finish("sandbox")
}

async fn measure(mut report: Report, cloud: &Cloud) -> anyhow::Result<Report> {
    let mut client = cloud.client().await?;
    let bwrap = rounds(&mut report, cloud, &mut client).await?;
    nights(&mut report, cloud, &mut client).await?;
    bursts(&mut report, cloud, bwrap).await?;
    let place = tempfile::Builder::new().prefix("holm-bench-files-").tempdir()?;
    // The server has closed the first connection, which was idle during the bursts.
    let mut client = cloud.client().await?;
    client.make("files").await?;
    files::measure(&mut report, &mut client, "files", place.path()).await?;
    Ok(report)
}

/// What was measured of the sandboxes of one caller.
#[derive(Default)]
struct Seen {
    /// Until the first command's output.
    create: Samples,
    /// Until the sandbox exists.
    made: Samples,
    exec: Samples,
    remove: Samples,
}

/// A peer that can run here.
struct Contender {
    peer: Peer,
    times: Samples,
    failures: Vec<anyhow::Error>,
}

/// Returns what `bwrap` typically took, in ms.
async fn rounds(report: &mut Report, cloud: &Cloud, client: &mut Client) -> anyhow::Result<f64> {
    let mut peers = Peers::prepare(Root::mount(cloud.images(), IMAGE)?)?;
    let mut able = Vec::new();
    for peer in Peer::ALL {
        match peers.prepare_one(peer).and_then(|()| peers.measure(peer)) {
            Ok(_) => able.push(Contender { peer, times: Samples::default(), failures: Vec::new() }),
            Err(error) => report.note(format!("{} cannot run here: {error:#}", peer.name())),
        }
    }
    client.make("lasting").await?;
    let mut seen = Seen::default();
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            seen = Seen::default();
        }
        one_round(client, &format!("round-{round}"), &mut seen).await?;
        for contender in
            able.iter_mut().filter(|able| round >= WARM_UP && round % able.peer.every() == 0)
        {
            tokio::time::sleep(PAUSE).await;
            match peers.measure(contender.peer) {
                Ok(time) => contender.times.add(time),
                Err(error) => contender.failures.push(error),
            }
        }
    }
    client.remove("lasting").await?;
    report.add_times("mk2_create", &seen.create)?;
    report.add_times("mk2_exec", &seen.exec)?;
    report.add_times("mk2_create_answer", &seen.made)?;
    report.add_times("mk2_delete_answer", &seen.remove)?;
    for Contender { peer, times, failures } in &able {
        let metric = if *peer == Peer::PodmanExec { "mk2_exec" } else { "mk2_create" };
        for percent in [50, 99] {
            report.set_peer(
                &format!("{metric}_p{percent}_ms"),
                peer.name(),
                times.percentile_ms(percent)?,
            );
        }
        if let Some(last) = failures.last() {
            report.note(format!(
                "{} failed {} times of itself: {last:#}",
                peer.name(),
                failures.len()
            ));
        }
    }
    beside_bwrap(report)
}

/// Adds the comparison with the start of a program by `bwrap`, which neither writes anything,
/// checks a key, nor creates a network.
fn beside_bwrap(report: &mut Report) -> anyhow::Result<f64> {
    let bwrap = Peer::Bwrap.name();
    for (percent, most) in [(50, 0.75), (99, 1.2)] {
        let metric = format!("mk2_create_p{percent}_ms");
        let ratio = format!("create_per_bwrap_p{percent}");
        report.add_ratio_to(&ratio, &metric, bwrap, Goal::AtMost(most));
    }
    let (_, usual) = report.values("mk2_create_p50_ms", bwrap).context("bwrap did not run")?;
    let exec = report.value("mk2_exec_p50_ms").context("no command was measured")?;
    report.add_ratio("exec_per_bwrap_p50", exec, usual, Goal::AtMost(0.2));
    Ok(usual)
}

async fn one_round(client: &mut Client, name: &str, seen: &mut Seen) -> anyhow::Result<()> {
    tokio::time::sleep(PAUSE).await;
    let begun = Instant::now();
    client.make(name).await?;
    let made = begun.elapsed();
    let output = client.run(name, "/bin/echo hi").await?;
    seen.create.since(begun);
    seen.made.add(made);
    anyhow::ensure!(output == "hi\n", "the command wrote {output:?}");

    tokio::time::sleep(PAUSE).await;
    let begun = Instant::now();
    client.run("lasting", "/bin/true").await?;
    seen.exec.since(begun);

    tokio::time::sleep(PAUSE).await;
    let begun = Instant::now();
    client.remove(name).await?;
    seen.remove.since(begun);
    Ok(())
}

/// Lets many sandboxes fall asleep and wakes one after the other: half by a plain request, half by
/// a command.
async fn nights(report: &mut Report, cloud: &Cloud, client: &mut Client) -> anyhow::Result<()> {
    let names: Vec<String> = (0..SLEEPERS).map(|number| format!("sleeper-{number}")).collect();
    for name in &names {
        client.make(name).await?;
    }
    let (mut wake, mut wake_exec) = (Samples::default(), Samples::default());
    for night in 0..NIGHTS {
        wait_for(Duration::from_secs(30), "not all sandboxes sleep", async || {
            Ok(cloud.asleep().await? == SLEEPERS)
        })
        .await?;
        for (number, name) in names.iter().enumerate() {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            if (night + number) % 2 == 0 {
                client.knock(name).await?;
                wake.since(begun);
            } else {
                client.run(name, "/bin/true").await?;
                wake_exec.since(begun);
            }
        }
    }
    report.add_times("mk2_wake", &wake)?;
    report.add_times("mk2_wake_exec", &wake_exec)?;
    cloud.clear().await
}

/// Has a hundred callers each create a sandbox and run a command in it, all at once.
async fn bursts(report: &mut Report, cloud: &Cloud, bwrap: f64) -> anyhow::Result<()> {
    let mut times = Samples::default();
    let mut worst: f64 = 0.0;
    for burst in 0..BURSTS {
        let mut clients = cloud.clients(BURST).await?;
        let begun = Instant::now();
        let each = clients.iter_mut().enumerate().map(|(number, client)| async move {
            let name = format!("burst-{burst}-{number}");
            client.make(&name).await?;
            client.run(&name, "/bin/true").await
        });
        try_join_all(each).await?;
        let took = begun.elapsed();
        times.add(took);
        let multiple = took.as_secs_f64() * 1e3 / bwrap;
        report.note(format!("burst {}: {multiple:.0} times the start of bwrap", burst + 1));
        worst = worst.max(multiple);
        cloud.clear().await?;
        // Deleted sandboxes are dismantled after the answer, and new places are prepared.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    report.add(format!("mk2_burst{BURST}_ms"), times.percentile_ms(50)?, "ms");
    // The worst of all: each of them has to reach the goal.
    report.add_ratio(format!("burst{BURST}_per_bwrap"), worst, 1.0, Goal::AtMost(60.0));
    Ok(())
}
