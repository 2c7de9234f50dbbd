//! A volume as a sandbox sees it, beside a file on the disk that holds the volume. The same program
//! uses both, bypassing the cache of the machine.

use super::{TIMEOUT, make_sandbox, quoted};
use crate::cloud::{Client, Cloud, wait_for};
use crate::report::{Goal, Report};
use crate::samples::median;
use anyhow::Context as _;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "disk";
const VOLUME_MB: u32 = 2_048;
const PEER: &str = "the bare disk";
/// Rounds of each kind, of which the median counts, so that short noise of the machine does not.
const ROUNDS: usize = 3;

/// Prints megabytes or operations per second: KIND PATH SECONDS. Aligned buffers, no cache, one at
/// a time.
const SCRIPT: &str = r"
import mmap, os, random, sys, time
kind, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
size, small = 512 << 20, 4096
block = small if 'random' in kind else 1 << 20
buffer = mmap.mmap(-1, block)
buffer.write(os.urandom(block))
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
if os.fstat(file).st_size < size:
    whole = mmap.mmap(-1, 1 << 20)
    whole.write(os.urandom(1 << 20))
    for at in range(0, size, 1 << 20):
        os.pwrite(file, whole, at)
    os.fsync(file)
count = at = 0
begun = time.monotonic()
while time.monotonic() - begun < seconds:
    if 'random' in kind:
        at = random.randrange(size // small) * small
    if 'read' in kind:
        os.preadv(file, [buffer], at)
    else:
        os.pwrite(file, buffer, at)
    at = (at + block) % size
    count += 1
os.fsync(file)
took = time.monotonic() - begun
print(count / took if 'random' in kind else count / took * block / 1e6)
";
const SECONDS: &str = "2";
const KINDS: [(&str, &str); 4] = [
    ("sequential_write", "MB/s"),
    ("sequential_read", "MB/s"),
    ("random_write", "1/s"),
    ("random_read", "1/s"),
];

pub(crate) async fn measure(
    report: &mut Report,
    cloud: &Cloud,
    place: &Path,
) -> anyhow::Result<()> {
    let mut client = cloud.client().await?;
    mount(&mut client).await?;
    let bare = place.join("bare");
    for (kind, unit) in KINDS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let inside = format!("python3 -c '{}' {kind} /data/file {SECONDS}", quoted(SCRIPT));
            ours.push(number(&client.run(NAME, &inside).await?)?);
            theirs.push(number(&on_machine(kind, &bare)?)?);
        }
        let metric = format!("volume_{kind}");
        report.add(metric.clone(), median(&ours), unit);
        report.set_peer(&metric, PEER, median(&theirs));
        let ratio = format!("volume_{kind}_per_disk");
        report.add_ratio_to(&ratio, &metric, PEER, Goal::AtLeast(0.9));
    }
    client.remove(NAME).await?;
    let gone = async || {
        let volume = client.ask("GET", "/v0/volumes/disk", &Value::Null).await?;
        Ok(volume["state"]["attachedTo"].is_null())
    };
    wait_for(TIMEOUT, "the volume is not free", gone).await?;
    client.ask("DELETE", "/v0/volumes/disk", &Value::Null).await.map(drop)
}

async fn mount(client: &mut Client) -> anyhow::Result<()> {
    let volume = json!({"metadata": {"name": NAME}, "spec": {"size": VOLUME_MB}});
    client.ask("POST", "/v0/volumes", &volume).await?;
    let volumes = json!([{"name": NAME, "mountPath": "/data"}]);
    make_sandbox(client, NAME, &volumes).await
}

fn on_machine(kind: &str, file: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, kind]).arg(file).arg(SECONDS).stdout(Stdio::piped());
    let output = command.output()?;
    anyhow::ensure!(output.status.success(), "the bare disk cannot be measured");
    Ok(String::from_utf8(output.stdout)?)
}

fn number(text: &str) -> anyhow::Result<f64> {
    text.trim().parse().with_context(|| format!("`{text}` is no number"))
}
