//! Certificates from a certificate authority that speaks ACME. They are made only for the hosts of
//! previews below verified domains, whatever names callers ask for.
//!
//! One task owns the state of each name:
//!
//! ```text
//! wanted ──▶ Held (from the shelf) ──2/3 of its life──▶ Ordering ──▶ Held
//!       └──▶ Waiting ──▶ Ordering ──▶ Failed ──pause──▶ Ordering …  ──TRIES_MAX──▶ GivenUp, until it is wanted anew
//! ```
//!
//! A name that has a certificate is never given up: callers rely on it.
//!
//! Workspaces take turns (`turns`), because the authority limits what this server may order in all.

mod order;
mod shelf;
mod turns;

use crate::config;
use crate::error::Error;
use crate::server::authorities;
use crate::server::edge::{Hosted, Hosts};
use crate::server::tls::{Certificates, Pair};
use order::{Authority, OrderError};
use shelf::Shelf;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use turns::Turns;
use types::ids::{ResourceId, WorkspaceId};
use types::parts::names::is_dns_name;
use types::{Timestamp, World};

const ORDERS_AT_ONCE: usize = 4;
/// Most orders in progress of one workspace. The others stay free for other workspaces, since an
/// order for a host that does not answer can take minutes.
const ORDERS_AT_ONCE_WORKSPACE: usize = 2;
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The pause after a failure doubles, from the first to the longest.
const FIRST_PAUSE_S: i64 = 60;
const LONGEST_PAUSE_S: i64 = 24 * 3600;
const TRIES_MAX: u32 = 12;

pub(crate) struct Acme {
    authority: Arc<Authority>,
    certificates: Arc<Certificates>,
    shelf: Arc<Shelf>,
    world: World,
    standings: HashMap<String, Standing>,
    turns: Turns,
    orders: JoinSet<Made>,
    /// What each task of `orders` is for.
    ordered: HashMap<Id, Ordered>,
}

type Made = Result<Pair, OrderError>;

struct Ordered {
    name: String,
    workspace: WorkspaceId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waiting,
    Ordering { tries: u32 },
    Held { renew_at: Timestamp },
    Failed { tries: u32, again_at: Timestamp },
    GivenUp,
}

impl Acme {
    pub(crate) fn open(
        settings: &config::Acme,
        data: &Path,
        certificates: &Arc<Certificates>,
        world: &World,
    ) -> Result<Option<Self>, Error> {
        let Some(directory) = settings.directory.clone() else { return Ok(None) };
        // It is used for the first time when a certificate is ordered, which may be in months.
        authorities::read("domains.acme.root", settings.root.as_deref())?;
        let shelf = Shelf::open(&data.join("certificates"))
            .map_err(Error::io("make the folder of certificates"))?;
        let shelf = Arc::new(shelf);
        let authority = Authority::new(directory, settings, Arc::clone(&shelf));
        Ok(Some(Self {
            authority: Arc::new(authority),
            certificates: Arc::clone(certificates),
            shelf,
            world: world.clone(),
            standings: HashMap::new(),
            turns: Turns::new(settings.orders_workspace_hour_max as usize),
            orders: JoinSet::new(),
            ordered: HashMap::new(),
        }))
    }

    pub(crate) async fn run(mut self, mut hosts: Hosts, ending: CancellationToken) {
        loop {
            let wanted = wanted(&hosts.borrow_and_update());
            self.begin(&wanted);
            let waiting = async {
                tokio::select! {
                    changed = hosts.changed() => if changed.is_err() { std::future::pending().await },
                    Some(done) = self.orders.join_next_with_id() => self.finish(done),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            };
            if ending.run_until_cancelled(waiting).await.is_none() {
                return;
            }
        }
    }

    /// Starts the orders that are due, and drops names that are no longer wanted.
    fn begin(&mut self, wanted: &BTreeMap<String, WorkspaceId>) {
        self.drop_unwanted(wanted);
        let now = self.world.now();
        let mut due = self.due(wanted, now);
        while self.orders.len() < ORDERS_AT_ONCE {
            let has_place = |workspace: &&WorkspaceId| {
                let own = self.ordered.values().filter(|order| order.workspace == **workspace);
                own.count() < ORDERS_AT_ONCE_WORKSPACE
            };
            let Some(next) = self.turns.next(due.keys().copied().filter(has_place), now) else {
                return;
            };
            let Some((name, tries)) = due.get_mut(next).and_then(Vec::pop) else { return };
            if due.get(next).is_some_and(Vec::is_empty) {
                due.remove(next);
            }
            self.standings.insert(name.to_owned(), Standing::Ordering { tries });
            self.order(name.to_owned(), next.clone());
        }
    }

    fn drop_unwanted(&mut self, wanted: &BTreeMap<String, WorkspaceId>) {
        let gone: Vec<String> =
            self.standings.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            self.certificates.remove_made(&name);
            // An order in progress puts its name back when it finishes; the name goes in a later
            // round.
            if !matches!(self.standings.get(&name), Some(Standing::Ordering { .. })) {
                self.standings.remove(&name);
            }
        }
    }

    /// Returns the names of each workspace for which an order is due, with the number of earlier
    /// tries. The first name of the alphabet is last.
    fn due<'a>(
        &mut self,
        wanted: &'a BTreeMap<String, WorkspaceId>,
        now: Timestamp,
    ) -> BTreeMap<&'a WorkspaceId, Vec<(&'a str, u32)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, workspace) in wanted.iter().rev() {
            // A stored certificate is used at once, however many orders are in progress.
            let standing = self.standing(name);
            if let Some(tries) = due(standing, now)
                && !self.certificates.is_given(name)
            {
                all.entry(workspace).or_default().push((name.as_str(), tries));
            }
        }
        all
    }

    fn standing(&mut self, name: &str) -> Standing {
        if let Some(known) = self.standings.get(name) {
            return *known;
        }
        let standing = self.take_from_shelf(name).unwrap_or(Standing::Waiting);
        self.standings.insert(name.to_owned(), standing);
        standing
    }

    /// Takes a certificate that an earlier run made and stored, unless it has expired. One of
    /// another authority is renewed at once: people try with one that nobody trusts first.
    fn take_from_shelf(&mut self, name: &str) -> Option<Standing> {
        let (pair, is_of_authority) = self.shelf.load(name, &self.authority.directory)?;
        let now = self.world.now();
        if pair.until <= now {
            return None;
        }
        let renew_at = if is_of_authority { renew_at(&pair) } else { now };
        let standing = Standing::Held { renew_at };
        self.certificates.put_made(name, pair.certified);
        Some(standing)
    }

    fn order(&mut self, name: String, workspace: WorkspaceId) {
        let (authority, certificates) =
            (Arc::clone(&self.authority), Arc::clone(&self.certificates));
        let wanted = name.clone();
        let task = self.orders.spawn(async move { authority.order(&certificates, &wanted).await });
        self.ordered.insert(task.id(), Ordered { name, workspace });
    }

    fn finish(&mut self, done: Result<(Id, Made), JoinError>) {
        let (id, made) = done.unwrap_or_else(|error| (error.id(), Err(OrderError::BrokenOff)));
        let Some(Ordered { name, .. }) = self.ordered.remove(&id) else { return };
        let standing = match made {
            Ok(pair) => {
                tracing::info!(name, "a certificate was made");
                let renew_at = renew_at(&pair);
                self.certificates.put_made(&name, pair.certified);
                Standing::Held { renew_at }
            }
            Err(error) => {
                let has_one = self.certificates.has_made(&name);
                let before = self.standings.get(&name).copied();
                let standing = after_failure(before, has_one, self.world.now());
                match has_one {
                    true => {
                        tracing::error!(name, %error, ?standing, "a certificate could not be renewed")
                    }
                    false => {
                        tracing::warn!(name, %error, ?standing, "a certificate could not be made")
                    }
                }
                standing
            }
        };
        self.standings.insert(name, standing);
    }
}

/// Returns the names that certificates are wanted for.
fn wanted(hosts: &HashMap<ResourceId, Hosted>) -> BTreeMap<String, WorkspaceId> {
    let names = hosts.values().flat_map(|hosted| {
        hosted.hosts.iter().map(|host| (host.clone(), hosted.workspace.clone()))
    });
    names.filter(|(host, _)| is_dns_name(host)).collect()
}

/// Returns how often an order that is due was tried before; `None` if none is due.
fn due(standing: Standing, now: Timestamp) -> Option<u32> {
    match standing {
        Standing::Waiting => Some(0),
        Standing::Held { renew_at } if renew_at <= now => Some(0),
        Standing::Failed { tries, again_at } if again_at <= now => Some(tries),
        _ => None,
    }
}

/// Decides when an order that failed is tried again. `has_one` says that the name has a certificate,
/// which was to be renewed.
fn after_failure(before: Option<Standing>, has_one: bool, now: Timestamp) -> Standing {
    let tries = match before {
        Some(Standing::Ordering { tries }) => (tries + 1).min(TRIES_MAX),
        _ => 1,
    };
    if tries == TRIES_MAX && !has_one {
        return Standing::GivenUp;
    }
    let pause_s = FIRST_PAUSE_S.saturating_mul(1 << (tries - 1)).min(LONGEST_PAUSE_S);
    Standing::Failed { tries, again_at: now.plus_s(pause_s) }
}

fn renew_at(pair: &Pair) -> Timestamp {
    let life_ms = pair.until.ms().saturating_sub(pair.from.ms());
    Timestamp::from_ms(pair.from.ms().saturating_add(life_ms / 3 * 2))
}

#[cfg(test)]
mod tests;
