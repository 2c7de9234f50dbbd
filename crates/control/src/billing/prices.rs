//! The price book of an account.

use crate::error::Error;
use meter::Price;
use std::collections::BTreeSet;
use store::Tx;
use store::identity::accounts;
use store::prices::{self, Version};
use types::ids::AccountId;
use types::time::HOUR_MS;
use types::usage::Dimension;
use types::wire::{AccountPrices, PriceMap, PriceVersion};
use types::{Problems, Timestamp};

pub fn get(tx: &mut Tx<'_>, account: &AccountId) -> Result<AccountPrices, Error> {
    Ok(shown(prices::list(tx, account)?))
}

/// Replaces the versions that have not begun. Those that have begun stay, whether they are sent
/// back or not.
pub fn replace(
    tx: &mut Tx<'_>,
    account: &AccountId,
    wish: &[PriceVersion],
    by: &str,
) -> Result<AccountPrices, Error> {
    accounts::lock(tx, account)?;
    let now = tx.world().now();
    let coming = coming(wish, &prices::list(tx, account)?, now)?;
    prices::replace_coming(tx, account, &coming, by, now)?;
    get(tx, account)
}

fn shown(versions: Vec<Version>) -> AccountPrices {
    let shown = |version: Version| PriceVersion {
        valid_from: Some(version.valid_from),
        prices: version.prices,
    };
    AccountPrices { versions: versions.into_iter().map(shown).collect() }
}

/// Returns the versions that begin now or later. Earlier ones in the wish must equal the stored
/// ones.
fn coming(
    wish: &[PriceVersion],
    stored: &[Version],
    now: Timestamp,
) -> Result<Vec<Version>, Problems> {
    let (mut problems, mut coming, mut begins) = (Problems::default(), Vec::new(), BTreeSet::new());
    for (index, version) in wish.iter().enumerate() {
        let at = format!("versions[{index}]");
        check_prices(&version.prices, &format!("{at}.prices"), &mut problems);
        let valid_from = version.valid_from.unwrap_or_else(|| next_hour(now));
        let version = Version { valid_from, prices: version.prices.clone() };
        if valid_from < now && stored.contains(&version) {
            continue;
        }
        let at = format!("{at}.validFrom");
        problems.require(
            valid_from >= now,
            &at,
            "has passed: what was billed stays as it is, so a new price begins later",
        );
        problems.require(
            valid_from.ms() % HOUR_MS == 0,
            &at,
            "must be a full hour in UTC: an hour has one price",
        );
        problems.require(
            begins.insert(valid_from),
            &at,
            "is the beginning of another version already",
        );
        coming.push(version);
    }
    problems.into_result().map(|()| coming)
}

fn next_hour(now: Timestamp) -> Timestamp {
    Timestamp::from_ms(
        now.ms().saturating_add(HOUR_MS - 1).div_euclid(HOUR_MS).saturating_mul(HOUR_MS),
    )
}

fn check_prices(prices: &PriceMap, at: &str, problems: &mut Problems) {
    for (dimension, price) in prices {
        if Dimension::parse(dimension).is_none() {
            problems.add(
                at,
                format!("has a name that is no billing dimension; there are {}", dimensions()),
            );
        } else if let Err(error) = price.parse::<Price>() {
            problems.add(format!("{at}.{dimension}"), format!("cannot be used: {error}"));
        }
    }
}

/// Returns the names of all billing dimensions.
pub fn dimensions() -> String {
    Dimension::ALL.iter().map(|dimension| dimension.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(valid_from: &str, price: &str) -> PriceVersion {
        let prices = PriceMap::from([("volume_storage_gbs".to_owned(), price.to_owned())]);
        PriceVersion { valid_from: Some(valid_from.parse().unwrap()), prices }
    }

    fn stored(valid_from: &str, price: &str) -> Version {
        let PriceVersion { valid_from, prices } = version(valid_from, price);
        Version { valid_from: valid_from.unwrap(), prices }
    }

    #[track_caller]
    fn check(wish: &[PriceVersion], expect: Result<&[Version], &str>) {
        let known = [stored("2026-01-01T00:00:00Z", "1"), stored("2026-05-01T00:00:00Z", "2")];
        match (coming(wish, &known, "2026-04-16T09:30:00Z".parse().unwrap()), expect) {
            (Ok(coming), Ok(expect)) => assert_eq!(coming, expect),
            (Err(problems), Err(part)) => {
                assert!(problems.to_string().contains(part), "{problems}")
            }
            (found, expect) => panic!("{found:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn only_what_has_not_begun_can_be_said() {
        let (past, next) =
            (version("2026-01-01T00:00:00Z", "1"), version("2026-06-01T00:00:00Z", "3"));
        check(&[past.clone(), next.clone()], Ok(&[stored("2026-06-01T00:00:00Z", "3")]));
        check(&[], Ok(&[]));
        check(&[version("2026-01-01T00:00:00Z", "9")], Err("versions[0].validFrom` has passed"));
        check(&[version("2026-04-16T09:00:00Z", "9")], Err("has passed"));
        check(&[version("2026-04-16T09:45:00Z", "9")], Err("full hour"));
        check(&[next.clone(), next.clone()], Err("another version"));
        check(
            &[PriceVersion { valid_from: None, ..next }],
            Ok(&[stored("2026-04-16T10:00:00Z", "3")]),
        );
    }

    #[test]
    fn prices_are_of_known_dimensions() {
        let mut wish = version("2026-06-01T00:00:00Z", "1e3");
        check(&[wish.clone()], Err("versions[0].prices.volume_storage_gbs"));
        wish.prices = PriceMap::from([("gold".to_owned(), "1".to_owned())]);
        check(&[wish], Err("there are agent_async_requests_count"));
    }
}
