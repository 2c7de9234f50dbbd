//! Measurements of what users wait and pay for, beside what else they could take: `make bench NAME=api`.
//!
//! `cargo run --release -p bench -- api sqlite` measures one part alone, for those who work on it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "people read what is measured, as it goes")]

mod api;
mod etcd;
mod grpc;
mod http1;
mod load;
mod machine;
mod report;

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    match name.as_str() {
        "api" => api::run(&words.collect::<Vec<_>>()),
        other => bail!("there is no measurement `{other}`; there is: api"),
    }
}
