//! Prices of units, and the times from which they are valid.

use crate::money::{Price, Tariff};
use std::collections::BTreeMap;
use types::Timestamp;
use types::time::HOUR_MS;
use types::usage::Dimension;

/// The prices of an account: for each dimension, prices with the time from which they are valid.
/// Before the first price usage costs nothing.
///
/// A price counts from the first full hour at or after that time, so an hour has one price. Past
/// usage keeps the price of its time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceBook {
    by_dimension: BTreeMap<Dimension, BTreeMap<i64, Price>>,
}

impl PriceBook {
    /// Returns a book in which everything is free.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a price. Of two that begin with the same hour, the one added last counts.
    pub fn set(&mut self, dimension: Dimension, valid_from: Timestamp, price: Price) {
        let hour = valid_from.ms().saturating_add(HOUR_MS - 1).div_euclid(HOUR_MS);
        self.by_dimension.entry(dimension).or_default().insert(hour, price);
    }

    /// Returns the price of an hour, counted from 1970.
    fn price(&self, dimension: Dimension, hour: i64) -> Price {
        let prices = self.by_dimension.get(&dimension);
        prices
            .and_then(|prices| prices.range(..=hour).next_back())
            .map_or(Price::ZERO, |(_, price)| *price)
    }

    pub(crate) fn tariff(&self, dimension: Dimension, hour: i64) -> Tariff {
        Tariff::new(self.price(dimension, hour), dimension.measure())
    }

    /// Returns the hours after `first` and before `end` that begin with another price.
    pub(crate) fn changes(
        &self,
        dimension: Dimension,
        first: i64,
        end: i64,
    ) -> impl Iterator<Item = i64> {
        let prices = self.by_dimension.get(&dimension);
        let changes = prices.map(|prices| prices.range(first + 1..end.max(first + 1)));
        changes.into_iter().flatten().map(|(hour, _)| *hour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_keeps_the_price_of_its_hour() {
        let mut book = PriceBook::new();
        let (low, high): (Price, Price) = ("1".parse().unwrap(), "2".parse().unwrap());
        book.set(Dimension::JobRuntime, Timestamp::from_ms(10 * HOUR_MS), low);
        book.set(Dimension::JobRuntime, Timestamp::from_ms(20 * HOUR_MS + 1), high);
        let price = |hour| book.price(Dimension::JobRuntime, hour);
        assert_eq!([price(9), price(10), price(20), price(21)], [Price::ZERO, low, low, high]);
        assert_eq!(book.price(Dimension::JobImages, 30), Price::ZERO);
        let changes =
            |first, end| book.changes(Dimension::JobRuntime, first, end).collect::<Vec<_>>();
        assert_eq!([changes(10, 21), changes(10, 22), changes(9, 9)], [vec![], vec![21], vec![]]);
        assert_eq!(book.changes(Dimension::JobImages, 0, 100).count(), 0);
    }
}
