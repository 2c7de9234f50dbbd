//! Files in and out of a sandbox, beside the same bytes written and read on the machine.

use crate::cloud::{Client, Form};
use crate::report::{Goal, Report};
use crate::samples::Samples;
use anyhow::ensure;
use std::fs;
use std::path::Path;
use std::time::Instant;

const PATH: &str = "/tmp/file";
const SIZES: [(&str, usize, usize); 3] =
    [("1kib", 1 << 10, 100), ("1mib", 1 << 20, 50), ("100mib", 100 << 20, 5)];
const PEER: &str = "on the machine";

pub(crate) async fn measure(
    report: &mut Report,
    client: &mut Client,
    name: &str,
    place: &Path,
) -> anyhow::Result<()> {
    for (size, bytes, rounds) in SIZES {
        let file: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(bytes).collect();
        let form = Form::new(&file);
        let at = place.join("file");
        let [mut write, mut read, mut host_write, mut host_read] = <[Samples; 4]>::default();
        for round in 0..=rounds {
            let times = [
                timed(async || client.write(name, PATH, &form).await).await?,
                timed(async || {
                    let back = client.read(name, PATH).await?;
                    ensure!(back.len() == bytes, "{} of {bytes} bytes came back", back.len());
                    Ok(())
                })
                .await?,
                timed(async || Ok(fs::write(&at, &file)?)).await?,
                timed(async || Ok(fs::read(&at).map(drop)?)).await?,
            ];
            // The first round warms up.
            if round > 0 {
                let all = [&mut write, &mut read, &mut host_write, &mut host_read];
                all.into_iter().zip(times).for_each(|(samples, time)| samples.add(time));
            }
        }
        ensure!(client.read(name, PATH).await? == file, "other bytes came back");
        for (what, ours, theirs) in [("write", write, host_write), ("read", read, host_read)] {
            let metric = format!("mk2_{what}_{size}_p50_ms");
            report.add(metric.clone(), ours.percentile_ms(50)?, "ms");
            report.set_peer(&metric, PEER, theirs.percentile_ms(50)?);
        }
    }
    report.add_ratio_to("write100mib_per_host", "mk2_write_100mib_p50_ms", PEER, Goal::AtMost(1.3));
    Ok(())
}

async fn timed(
    act: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<std::time::Duration> {
    let begun = Instant::now();
    act().await?;
    Ok(begun.elapsed())
}
