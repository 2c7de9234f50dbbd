//! Measures how long a start takes, compared with alternatives. Prints a table; run it by its name,
//! in a release build.

use crate::machine::{BUSYBOX, Machine, world};
use node::Node;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 60;

fn row(name: &str, mut once: impl FnMut()) -> String {
    let mut times: Vec<Duration> = (0..=ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            once();
            let took = begin.elapsed();
            std::thread::sleep(Duration::from_millis(30));
            took
        })
        .skip(1)
        .collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0;
    format!("{name:<40} p10 {:6.2}  p50 {:6.2}  p99 {:6.2} ms", at(10), at(50), at(99))
}

#[test]
#[ignore = "a measurement"]
fn from_create_to_first_output() {
    let machine = Machine::new();
    let node = machine.open();
    let mut rows = Vec::new();
    let mut made = Vec::new();
    rows.push(row("create, until output is there", || {
        let spec = machine
            .shell(&format!("m-{}", world().random_text(8)), "echo hi; while :; do sleep 9; done");
        node.create(&spec).unwrap();
        while node.console(&spec.id).unwrap().is_empty() {
            std::thread::yield_now();
        }
        made.push(spec.id);
    }));
    rows.push(row("destroy", || node.destroy(&made.pop().unwrap()).unwrap()));
    rows.push(row("create, run, wait, destroy", || {
        machine.outcome(&node, "echo hi");
    }));
    let spec = machine.shell("sleeper", "while :; do sleep 9; done");
    node.create(&spec).unwrap();
    rows.push(row("pause", || {
        node.resume(&spec.id).unwrap();
        node.pause(&spec.id).unwrap();
    }));
    node.destroy(&spec.id).unwrap();
    rows.push(row("busybox alone", || run(Command::new(BUSYBOX).args(["echo", "hi"]))));
    let root = machine.root();
    if Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok() {
        rows.push(row("bwrap --unshare-all", || {
            run(Command::new("bwrap")
                .args(["--unshare-all", "--proc", "/proc", "--dev", "/dev", "--bind"])
                .arg(&root)
                .args(["/", "/bin/echo", "hi"]));
        }));
    }
    rows.iter().for_each(|row| println!("{row}"));
    for threads in [1, 2, 4] {
        println!(
            "{:<40} {:.0} per second",
            format!("create and destroy, {threads} threads"),
            rate(&machine, &node, threads)
        );
    }
}

/// Includes making the networks, because there are more rounds than networks ready.
fn rate(machine: &Machine, node: &Node, threads: usize) -> f64 {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let spec =
                        machine.shell(&format!("r-{thread}-{round}"), "while :; do sleep 9; done");
                    node.create(&spec).unwrap();
                    node.destroy(&spec.id).unwrap();
                }
            });
        }
    });
    (threads * ROUNDS) as f64 / begin.elapsed().as_secs_f64()
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}
