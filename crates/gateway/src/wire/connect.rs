//! New connections to the ports of an instance.

use super::connection::{NoAnswer, Wire};
use crate::machine::Machine;
use crate::settings::Settings;
use std::io;

/// Why a workload did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.message("workload"))]
pub enum Unanswered {
    NotListening(u16),
    Unreachable { port: u16, source: io::Error },
    ConnectTimedOut(u16),
    Silent(u16),
    Broken { port: u16, source: hyper::Error },
}

impl Unanswered {
    /// `kind` is the caller's word for the workload.
    pub(crate) fn message(&self, kind: &str) -> String {
        match self {
            Self::NotListening(port) => {
                format!("nothing listens on 127.0.0.1:{port} in the {kind}")
            }
            Self::Unreachable { port, .. } => {
                format!("port {port} of the {kind} could not be reached")
            }
            Self::ConnectTimedOut(port) => {
                format!("port {port} of the {kind} did not accept a connection in time")
            }
            Self::Silent(port) => format!("port {port} of the {kind} was silent for too long"),
            Self::Broken { port, source } if source.is_parse_too_large() => {
                format!(
                    "the head of the answer of port {port} of the {kind} is too large or has more than 100 headers"
                )
            }
            Self::Broken { port, source } if source.is_parse() => {
                format!("port {port} of the {kind} answered with something that is not HTTP")
            }
            Self::Broken { port, .. } => {
                format!("port {port} of the {kind} closed the connection before it answered")
            }
        }
    }

    pub(crate) fn at(port: u16, failed: NoAnswer) -> Self {
        match failed {
            NoAnswer::Broken(source) | NoAnswer::Unsent(_, source) => Self::Broken { port, source },
            NoAnswer::Silent => Self::Silent(port),
        }
    }
}

pub(crate) async fn connect(
    machine: &dyn Machine,
    settings: &Settings,
    instance: &str,
    port: u16,
) -> Result<Box<Wire>, Unanswered> {
    let unreachable = |source| Unanswered::Unreachable { port, source };
    let connecting = machine.connect(instance, port);
    let connected = tokio::time::timeout(settings.connect_timeout, connecting).await;
    let stream = match connected.map_err(|_| Unanswered::ConnectTimedOut(port))? {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(Unanswered::NotListening(port));
        }
        Err(error) => return Err(unreachable(error)),
    };
    stream.set_nodelay(true).map_err(unreachable)?;
    Wire::open(stream, settings).await.map_err(|source| Unanswered::Broken { port, source })
}
