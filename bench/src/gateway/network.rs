//! The network of an instance, as the machine's root can enter it.

use crate::cloud::Cloud;
use anyhow::{Context as _, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;

pub(crate) struct Network {
    /// `/proc/ID/ns/net` of the instance's first process.
    pub(crate) file: String,
}

impl Network {
    pub(crate) fn of_the_only_instance(cloud: &Cloud) -> anyhow::Result<Self> {
        let groups = cloud.instances()?.into_iter();
        let ids = groups.filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        let process = ids.filter_map(|ids| ids.split_whitespace().next().map(str::to_owned)).next();
        Ok(Self {
            file: format!(
                "/proc/{}/ns/net",
                process.context("no process of the instance is to be seen")?
            ),
        })
    }

    /// Opens a connection to the instance's own loopback address. A thread enters, connects and
    /// ends.
    pub(crate) fn connect(&self, port: u16) -> anyhow::Result<tokio::net::TcpStream> {
        let network = File::open(&self.file)?;
        let connected = thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            anyhow::Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
        });
        let stream =
            connected.join().map_err(|_| anyhow!("the thread that connects has failed"))??;
        stream.set_nonblocking(true)?;
        Ok(tokio::net::TcpStream::from_std(stream)?)
    }
}
