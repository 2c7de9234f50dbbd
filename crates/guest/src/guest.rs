//! All parts of this program, for the operations that need several of them.

use crate::http::{Error, Request};
use crate::instance::Instance;
use crate::network::{Monitors, Scans};
use crate::processes::Processes;
use crate::reaper::Reaper;
use crate::settings::Settings;
use crate::start::Start;
use crate::terminals::Terminals;
use crate::upgrade::{ProgramWanted, Upgrades};
use crate::work::Work;
use http::HeaderValue;
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use types::guest::{ProxySettings, SECRET_HEADER};
use types::{Timestamp, World};

pub(crate) struct Guest {
    pub(crate) instance: Arc<Instance>,
    pub(crate) started_at: Timestamp,
    /// The proxy settings that the machine sent last.
    pub(crate) proxy: Mutex<ProxySettings>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) monitors: Monitors,
    /// Looks at processes and their ports, for all who watch them.
    pub(crate) scans: Arc<Scans>,
    pub(crate) terminals: Terminals,
    pub(crate) upgrades: Mutex<Upgrades>,
    pub(crate) start: Start,
    /// The upgrade that is waiting for the program from the machine.
    pub(crate) program_wanted: ProgramWanted,
    /// The listening socket, which a newer program takes over when it replaces this one.
    pub(crate) listener: OwnedFd,
    /// The one piece of work that this instance is for, if it is a work instance.
    pub(crate) work: Option<Arc<Work>>,
}

impl Guest {
    pub(crate) fn new(
        world: World,
        mut settings: Settings,
        reaper: Arc<Reaper>,
        listener: OwnedFd,
    ) -> Self {
        let work = settings.work.take().map(|wanted| Arc::new(Work::new(&world, wanted)));
        Self {
            work,
            started_at: world.now(),
            proxy: Mutex::default(),
            processes: Arc::new(Processes::new(&settings)),
            monitors: Monitors::default(),
            scans: Arc::default(),
            terminals: Terminals::default(),
            upgrades: Mutex::default(),
            start: Start::default(),
            program_wanted: ProgramWanted::default(),
            listener,
            instance: Arc::new(Instance::new(world, settings, reaper)),
        }
    }

    /// Returns the address that this program serves.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        TcpListener::from(self.listener.try_clone()?).local_addr()
    }

    /// Answers callers other than the machine as if the path did not exist.
    pub(crate) fn require_machine(&self, request: &Request) -> Result<(), Error> {
        let shown =
            request.headers.get(SECRET_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        match &self.instance.settings.secret {
            Some(secret) if shown.ct_eq(secret.as_bytes()).into() => Ok(()),
            _ => Err(Error::NotFound("there is nothing at this path".into())),
        }
    }
}
