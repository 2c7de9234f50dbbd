//! What the gateway asks of the machine.

use crate::{Inner, Interrupted, LocalMachine};
use admission::UNSENT_BYTES_MAX;
use futures_util::future::BoxFuture;
use gateway::{Machine, MachineError};
use node::{Error, InstanceName};
use socket2::SockRef;
use std::io;
use tokio::net::{TcpSocket, TcpStream};

impl From<Interrupted> for MachineError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Failed(io::Error::other(interrupted))
    }
}

impl Machine for LocalMachine {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn connect<'a>(&'a self, instance: &'a str, port: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
        Box::pin(async move {
            let id = InstanceName::new(instance)
                .map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
            // This takes some microseconds: the socket is made inside the instance's network and
            // used from outside.
            let socket = self.0.node.socket(&id).map_err(|error| match error {
                Error::Missing(_) => io::Error::new(io::ErrorKind::NotFound, error),
                other => io::Error::other(other),
            })?;
            let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
            // No limit of an instance counts what this side holds for a program that does not read.
            SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
            socket.connect((std::net::Ipv4Addr::LOCALHOST, port).into()).await
        })
    }

    fn pause<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        self.act(instance, |inner, id| inner.node.pause(id))
    }

    fn resume<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.act(instance, |inner, id| inner.node.resume(id)).await?;
            self.tell_woken(instance).await
        })
    }

    fn give_program<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.hand_over_program(instance))
    }
}

impl LocalMachine {
    /// Tells programs about the proxy before the caller who woke the instance gets through:
    /// whatever they start for that caller has to find the way out.
    async fn tell_woken(&self, instance: &str) -> Result<(), MachineError> {
        let id = InstanceName::new(instance).map_err(|_| MachineError::Gone)?;
        self.tell_programs(&id).await.map_err(MachineError::Failed)
    }

    fn act<'a>(
        &'a self,
        instance: &'a str,
        act: impl FnOnce(&Inner, &InstanceName) -> Result<(), Error> + Send + 'static,
    ) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let id = InstanceName::new(instance).map_err(|_| MachineError::Gone)?;
            self.on_node(move |inner| {
                act(inner, &id).map_err(|error| match error {
                    Error::Missing(_) => MachineError::Gone,
                    other => MachineError::Failed(io::Error::other(other)),
                })
            })
            .await
        })
    }
}
