//! The server: assembly, listening, observation and the end of it.

pub(crate) mod observe;
pub(crate) mod probes;
pub(crate) mod process;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) async fn run(_config: crate::config::Config) -> Result<crate::exit::Exit, crate::error::Error> {
    Ok(crate::exit::Exit::Failed)
}
