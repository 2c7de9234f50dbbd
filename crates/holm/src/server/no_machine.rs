//! The gateway of a server that runs nothing itself. It serves models, and tells callers of other
//! workloads which server to ask, once it has checked that they may know.

use futures_util::future::BoxFuture;
use gateway::{Machine, MachineError};
use std::io;
use tokio::net::TcpStream;

/// A machine without instances. Its name is that of no machine.
pub(super) struct NoMachine;

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "this server runs no instances")
}

impl Machine for NoMachine {
    fn name(&self) -> &str {
        ""
    }

    fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
        Box::pin(std::future::ready(Err(none())))
    }

    fn pause<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(std::future::ready(Err(MachineError::Gone)))
    }

    fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(std::future::ready(Err(MachineError::Gone)))
    }

    fn give_program<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Err(none())))
    }
}
