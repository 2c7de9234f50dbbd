//! What the management side asks of the machine, and of the data plane about what is awake.

use crate::Host;
use crate::Interrupted;
use crate::instances::{fact, machine_id, runs, seen};
use crate::launching::chain;
use crate::leases::Purpose;
use bytes::Bytes;
use control::machine::{
    Fact, ImageAt, Launch, LaunchFault, Machine, MachineFault, Printed, ProcessAnswer, Seen, Stamp,
    UnknownImage, Wait, WorkEnd,
};
use gateway::{Found, Keeper};
use http_body_util::{BodyExt, Full, Limited};
use node::{Error, State, View};
use std::time::Duration;
use tokio::sync::mpsc;

/// Facts that are written down at once.
const FACTS_AT_ONCE: usize = 500;
/// How long one look for facts waits. The end of the program has to wait for it.
const FACTS_PATIENCE: Duration = Duration::from_millis(500);

/// Of the answer to a call of the management side.
const ANSWER_BYTES_MAX: usize = 1 << 20;

impl From<Interrupted> for MachineFault {
    fn from(interrupted: Interrupted) -> Self {
        Self(interrupted.to_string())
    }
}

/// The machine together with the keeper of who is awake on it.
pub struct Control {
    host: Host,
    keeper: Keeper,
}

impl Control {
    /// Tells the keeper of the instances that run already. Those with work never sleep, so it need
    /// not know them.
    pub fn new(host: Host, keeper: Keeper) -> Self {
        let serves =
            |view: &&View| runs(&view.state) && host.0.leases.purpose(&view.id) == Purpose::Serve;
        for view in host.0.node.list().iter().filter(serves) {
            let found = if matches!(view.state, State::Paused { .. }) {
                Found::Asleep
            } else {
                Found::Awake
            };
            keeper.start(view.id.as_str(), found);
        }
        Self { host, keeper }
    }
}

fn fault(error: &Error) -> MachineFault {
    MachineFault(chain(error))
}

impl Machine for Control {
    fn name(&self) -> &str {
        &self.host.0.name
    }

    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage> {
        self.host.0.find(image)
    }

    fn has_image(&self, digest: &str) -> bool {
        self.host.0.has(digest)
    }

    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> Wait<'a, Result<String, LaunchFault>> {
        Box::pin(self.host.fetch(launch))
    }

    fn launch(&self, launch: Launch) -> Wait<'_, Result<(), LaunchFault>> {
        Box::pin(async move {
            let serves = launch.work.is_none().then(|| launch.instance.clone());
            self.host.launch(launch).await?;
            if let Some(instance) = serves {
                self.keeper.start(&instance, Found::Awake);
            }
            Ok(())
        })
    }

    fn retire<'a>(&'a self, instance: &'a str) -> Wait<'a, Result<(), MachineFault>> {
        self.keeper.forget(instance);
        self.host.0.starting.lock().remove(instance);
        Box::pin(async move {
            let id = machine_id(instance).map_err(|error| MachineFault(error.to_string()))?;
            self.host
                .on_node(move |inner| {
                    match inner.node.destroy(&id) {
                        Ok(()) | Err(Error::Missing(_)) => inner.leases.give_back(&id),
                        Err(error) => return Err(fault(&error)),
                    }
                    Ok(())
                })
                .await
        })
    }

    fn rest<'a>(&'a self, instance: &'a str) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            self.keeper.rest(instance).await.map_err(|error| MachineFault(error.to_string()))
        })
    }

    fn instances(&self) -> Vec<Seen> {
        self.host.0.node.list().iter().map(seen).collect()
    }

    fn runs(&self, instance: &str) -> bool {
        let view = machine_id(instance).ok().and_then(|id| self.host.0.node.inspect(&id).ok());
        view.is_some_and(|view| runs(&view.state))
    }

    fn stamp(&self) -> Option<Stamp> {
        let (boot, uptime_ms) = self.host.0.node.give_sign();
        Some(Stamp { boot: boot.to_owned(), uptime_ms })
    }

    fn facts(&self) -> Wait<'_, Vec<Fact>> {
        Box::pin(async move {
            loop {
                let look = self.host.on_node(|inner| {
                    Ok::<_, MachineFault>(inner.node.facts(FACTS_AT_ONCE, FACTS_PATIENCE))
                });
                match look.await {
                    Ok(facts) if facts.is_empty() => {}
                    facts => return facts.unwrap_or_default().into_iter().map(fact).collect(),
                }
            }
        })
    }

    fn let_go(&self, number: u64) -> Wait<'_, Result<(), MachineFault>> {
        Box::pin(self.host.on_node(move |inner| {
            inner.node.forget(number).map_err(|error| MachineFault(error.to_string()))
        }))
    }

    fn attend<'a>(
        &'a self,
        instance: &'a str,
        from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> Wait<'a, Result<WorkEnd, MachineFault>> {
        Box::pin(self.host.attend(instance, from, printed))
    }

    fn start_failure<'a>(&'a self, instance: &'a str) -> Wait<'a, Option<String>> {
        Box::pin(self.host.start_failure(instance))
    }

    fn interrupt<'a>(&'a self, instance: &'a str) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(self.host.interrupt(instance))
    }

    fn start_process<'a>(
        &'a self,
        instance: &'a str,
        order: Bytes,
    ) -> Wait<'a, Result<ProcessAnswer, MachineFault>> {
        Box::pin(async move {
            let request = process_request(order);
            let fault = |error: &dyn std::error::Error| MachineFault(chain(error));
            let answer = self
                .keeper
                .call(instance, request.map(Full::new))
                .await
                .map_err(|error| fault(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|error| fault(&*error))?;
            Ok(ProcessAnswer { status: head.status.as_u16(), body: body.to_bytes() })
        })
    }
}

/// The call of the sandbox API that starts a process.
fn process_request(order: Bytes) -> http::Request<Bytes> {
    let mut request = http::Request::new(order);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("/process");
    let json = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    request
}
