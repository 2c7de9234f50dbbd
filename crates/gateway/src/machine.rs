//! The machine that instances run on, as the data plane needs it.

use futures_util::future::BoxFuture;
use std::io;
use tokio::net::TcpStream;

/// Calls may complete in any order and may be repeated.
pub trait Machine: Send + Sync + 'static {
    fn name(&self) -> &str;
    /// Connects to the loopback of an instance.
    fn connect<'a>(&'a self, instance: &'a str, port: u16) -> BoxFuture<'a, io::Result<TcpStream>>;
    /// Freezes all processes of an instance.
    fn pause<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>>;
    fn resume<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>>;
    /// Hands this server's guest program to an instance that asked for it.
    fn give_program<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, io::Result<()>>;
}

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("the instance is no more")]
    Gone,
    #[error("the machine failed")]
    Failed(#[source] io::Error),
}
