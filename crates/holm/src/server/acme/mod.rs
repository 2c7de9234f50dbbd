//! Certificates from a certificate authority that speaks ACME. They are made only for the hosts of
//! previews below verified domains, whatever names callers ask for.
//!
//! One task owns the state of each name:
//!
//! ```text
//! wanted ──▶ Held (from the shelf) ──2/3 of its life──▶ Ordering ──▶ Held
//!       └──▶ Ordering ──▶ Failed ──pause──▶ Ordering …  ──TRIES_MAX──▶ GivenUp, until it is wanted anew
//! ```

mod order;
mod shelf;

use crate::config;
use crate::error::Error;
use crate::server::edge::Hosts;
use crate::server::tls::{Certificates, Pair};
use order::{Authority, OrderError};
use shelf::Shelf;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::parts::names::is_dns_name;
use types::{Timestamp, World};

const ORDERS_AT_ONCE: usize = 4;
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
    orders: JoinSet<(String, Result<Pair, OrderError>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
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
            orders: JoinSet::new(),
        }))
    }

    pub(crate) async fn run(mut self, mut hosts: Hosts, ending: CancellationToken) {
        loop {
            let wanted = wanted(&hosts.borrow_and_update());
            self.begin(&wanted);
            let waiting = async {
                tokio::select! {
                    changed = hosts.changed() => if changed.is_err() { std::future::pending().await },
                    Some(done) = self.orders.join_next() => self.finish(done),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            };
            if ending.run_until_cancelled(waiting).await.is_none() {
                return;
            }
        }
    }

    /// Starts the orders that are due, and drops names that are no longer wanted.
    fn begin(&mut self, wanted: &BTreeSet<String>) {
        let gone: Vec<String> =
            self.standings.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in gone {
            self.certificates.remove_made(&name);
            // An order in progress puts its name back when it finishes; the name goes in a later
            // round.
            if !matches!(self.standings.get(&name), Some(Standing::Ordering { .. })) {
                self.standings.remove(&name);
            }
        }
        let now = self.world.now();
        for name in wanted {
            // A stored certificate is used at once, however many orders are in progress.
            let standing = self.standings.get(name).copied().or_else(|| self.take_from_shelf(name));
            let has_place = self.orders.len() < ORDERS_AT_ONCE && !self.certificates.is_given(name);
            if let Some(tries) = due(standing, now).filter(|_| has_place) {
                self.standings.insert(name.clone(), Standing::Ordering { tries });
                self.order(name.clone());
            }
        }
    }

    /// Takes a certificate that an earlier run made and stored, unless it has expired.
    fn take_from_shelf(&mut self, name: &str) -> Option<Standing> {
        let pair = self.shelf.load(name)?;
        if pair.until <= self.world.now() {
            return None;
        }
        let standing = Standing::Held { renew_at: renew_at(&pair) };
        self.certificates.put_made(name, pair.certified);
        self.standings.insert(name.to_owned(), standing);
        Some(standing)
    }

    fn order(&mut self, name: String) {
        let (authority, certificates) =
            (Arc::clone(&self.authority), Arc::clone(&self.certificates));
        self.orders.spawn(async move {
            let made = authority.order(&certificates, &name).await;
            (name, made)
        });
    }

    fn finish(&mut self, done: Result<(String, Result<Pair, OrderError>), tokio::task::JoinError>) {
        let Ok((name, made)) = done else {
            tracing::error!("an order of a certificate broke off");
            return;
        };
        let standing = match made {
            Ok(pair) => {
                tracing::info!(name, "a certificate was made");
                let renew_at = renew_at(&pair);
                self.certificates.put_made(&name, pair.certified);
                Standing::Held { renew_at }
            }
            Err(error) => {
                let standing = after_failure(self.standings.get(&name).copied(), self.world.now());
                tracing::warn!(name, %error, ?standing, "a certificate could not be made");
                standing
            }
        };
        self.standings.insert(name, standing);
    }
}

/// Returns the names that certificates are wanted for.
fn wanted(hosts: &HashMap<types::ids::ResourceId, Vec<String>>) -> BTreeSet<String> {
    hosts.values().flatten().filter(|host| is_dns_name(host)).cloned().collect()
}

/// Returns how often an order that is due was tried before; `None` if none is due.
fn due(standing: Option<Standing>, now: Timestamp) -> Option<u32> {
    match standing {
        None => Some(0),
        Some(Standing::Held { renew_at }) if renew_at <= now => Some(0),
        Some(Standing::Failed { tries, again_at }) if again_at <= now => Some(tries),
        Some(_) => None,
    }
}

fn after_failure(before: Option<Standing>, now: Timestamp) -> Standing {
    let tries = match before {
        Some(Standing::Ordering { tries }) => tries + 1,
        _ => 1,
    };
    if tries >= TRIES_MAX {
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
mod tests {
    use super::{FIRST_PAUSE_S, LONGEST_PAUSE_S, Standing, TRIES_MAX, after_failure, due};
    use types::Timestamp;

    #[test]
    fn pauses_grow_and_end() {
        let (mut now, mut standing, mut pauses) = (Timestamp::from_ms(0), None, Vec::new());
        while let Some(tries) = due(standing, now) {
            standing = Some(after_failure(Some(Standing::Ordering { tries }), now));
            let Some(Standing::Failed { again_at, .. }) = standing else { break };
            assert_eq!(due(standing, Timestamp::from_ms(again_at.ms() - 1)), None);
            pauses.push((again_at.ms() - now.ms()) / 1000);
            now = again_at;
        }
        assert_eq!(standing, Some(Standing::GivenUp));
        assert_eq!(pauses.len() + 1, TRIES_MAX as usize);
        assert_eq!((pauses[0], pauses[1]), (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S));
        assert!(
            pauses.is_sorted() && pauses.iter().all(|pause| *pause <= LONGEST_PAUSE_S),
            "{pauses:?}"
        );
    }

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_its_life_are_over() {
        let held = Some(Standing::Held { renew_at: Timestamp::from_ms(60_000) });
        assert_eq!(due(held, Timestamp::from_ms(59_999)), None);
        assert_eq!(due(held, Timestamp::from_ms(60_000)), Some(0));
    }
}
