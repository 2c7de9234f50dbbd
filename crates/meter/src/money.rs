//! Exact sums: money and quantities are whole numbers of a part so small that every price times
//! every usage is a whole number of them.
//!
//! So a sum is the same in whatever order it is added up, and rounding happens once, at the edge:
//! [`Money::dollars`] and [`Quantity::units`] round half to even at ten decimal places.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;
use types::usage::Measure;

/// A multiple of the size of one unit in every measure: 2^23 · 3^2 · 5^5.
const PARTS_PER_UNIT: i128 = 235_929_600_000;
/// Most decimal places of a price.
const PLACES: u32 = 12;
const PER_WHOLE: i128 = 10_i128.pow(PLACES);
const PARTS_PER_DOLLAR: i128 = PARTS_PER_UNIT * PER_WHOLE;
/// The largest price or amount of money that can be written down.
const WHOLE_MAX: i128 = 1_000_000_000;
const PLACES_SHOWN: i128 = 10_000_000_000;

/// US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(i128);

/// Billing units. Units of several dimensions may be added if a caller asks for such a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// A price in US dollars for one unit, with up to twelve decimal places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(i128);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an amount such as `0.0000115`: digits, at most {PLACES} of them after the point, up to {WHOLE_MAX}"
)]
pub struct BadAmount(String);

impl Money {
    pub const ZERO: Self = Self(0);

    /// Returns the amount, rounded half to even at ten decimal places.
    pub fn dollars(self) -> f64 {
        rounded(self.0, PARTS_PER_DOLLAR)
    }

    /// Returns a share of this, rounded down. `percent` may be above 100.
    pub fn percent(self, percent: u32) -> Self {
        // Divided first: a year of a large bill times 100 would still fit, but nothing limits the
        // amount of a budget.
        Self((self.0 / 100).saturating_mul(i128::from(percent)))
    }
}

impl Quantity {
    pub const ZERO: Self = Self(0);

    /// Returns the quantity of raw usage, which is in the whole numbers that usage is stored in.
    pub fn of(raw: i128, measure: Measure) -> Self {
        Self(raw.saturating_mul(parts(measure)))
    }

    /// Returns the units, rounded half to even at ten decimal places.
    pub fn units(self) -> f64 {
        rounded(self.0, PARTS_PER_UNIT)
    }
}

impl Price {
    pub const ZERO: Self = Self(0);

    /// Returns what raw usage costs, which is in the whole numbers that usage is stored in.
    pub fn cost(self, raw: i128, measure: Measure) -> Money {
        Tariff::new(self, measure).cost(raw)
    }
}

/// Returns how many parts of a unit one raw number of a measure is.
const fn parts(measure: Measure) -> i128 {
    PARTS_PER_UNIT / measure.per_unit()
}

/// The factors that turn raw usage into money and into a quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tariff {
    rate: i128,
    parts: i128,
}

impl Tariff {
    pub(crate) fn new(price: Price, measure: Measure) -> Self {
        Self { rate: price.0 * parts(measure), parts: parts(measure) }
    }

    pub(crate) fn cost(self, raw: i128) -> Money {
        Money(self.rate.saturating_mul(raw))
    }

    pub(crate) fn quantity(self, raw: i128) -> Quantity {
        Quantity(raw.saturating_mul(self.parts))
    }
}

fn rounded(parts: i128, per_whole: i128) -> f64 {
    // The tenth decimal place is not a whole number of parts, so what is below it is compared as a
    // fraction.
    let (whole, rest) = (parts.div_euclid(per_whole), parts.rem_euclid(per_whole));
    let scaled = rest * PLACES_SHOWN;
    let (mut places, below) = (scaled / per_whole, scaled % per_whole);
    if below * 2 > per_whole || (below * 2 == per_whole && places % 2 == 1) {
        places += 1;
    }
    let text = format!("{}.{:010}", whole + places / PLACES_SHOWN, places % PLACES_SHOWN);
    #[expect(clippy::expect_used, reason = "digits, a point and digits are a number")]
    text.parse().expect("a decimal number")
}

fn parse(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str, max: usize| {
        (1..=max).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    if !digits(whole, 18) || !digits(fraction, PLACES as usize) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let fraction: i128 = format!("{fraction:0<width$}", width = PLACES as usize).parse().ok()?;
    let value = whole * PER_WHOLE + fraction;
    (value <= WHOLE_MAX * PER_WHOLE).then_some(value)
}

fn write(value: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text =
        format!("{}.{:0width$}", value / PER_WHOLE, value % PER_WHOLE, width = PLACES as usize);
    f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
}

impl FromStr for Price {
    type Err = BadAmount;

    fn from_str(text: &str) -> Result<Self, BadAmount> {
        parse(text).map(Self).ok_or_else(|| BadAmount(text.to_owned()))
    }
}

impl FromStr for Money {
    type Err = BadAmount;

    fn from_str(text: &str) -> Result<Self, BadAmount> {
        parse(text)
            .map(|value| Self(value * PARTS_PER_UNIT))
            .ok_or_else(|| BadAmount(text.to_owned()))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, f)
    }
}

/// Cut off after twelve decimal places.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write((self.0 / PARTS_PER_UNIT).abs(), f)
    }
}

macro_rules! sums {
    ($($name:ident),+) => {$(
        impl Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
                parts.fold(Self(0), Add::add)
            }
        }
    )+};
}

sums!(Money, Quantity);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_unit_costs_its_price() {
        for measure in [Measure::Runtime, Measure::Storage, Measure::Events, Measure::Time] {
            assert_eq!(PARTS_PER_UNIT % measure.per_unit(), 0);
            let price: Price = "0.000000000001".parse().unwrap();
            assert_eq!(price.cost(measure.per_unit(), measure), "0.000000000001".parse().unwrap());
            assert_eq!(Quantity::of(measure.per_unit(), measure).units(), 1.0);
        }
        let price: Price = "0.0000115".parse().unwrap();
        let hour_of_4_gb = 4096 * 3_600_000;
        assert_eq!(price.cost(hour_of_4_gb, Measure::Runtime).dollars(), 0.1656);
    }

    #[test]
    fn amounts_that_are_none_are_refused() {
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "0.0000000000001",
            "1000000000.1",
            "1,5",
            " 1",
            "٣",
        ] {
            assert!(bad.parse::<Price>().is_err(), "{bad}");
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
        assert_eq!("1000000000".parse::<Price>().unwrap().to_string(), "1000000000");
    }

    #[test]
    fn rounding_goes_to_the_even_neighbour() {
        let cents = |text: &str| text.parse::<Money>().unwrap().dollars();
        assert_eq!(cents("0.00000000005"), 0.0);
        assert_eq!(cents("0.00000000015"), 0.000_000_000_2);
        assert_eq!(cents("0.000000000051"), 0.000_000_000_1);
        assert_eq!(Quantity::of(1, Measure::Time).units(), 0.000_000_277_8);
        assert_eq!(Quantity::of(-3_600_000, Measure::Time).units(), -1.0);
    }

    #[test]
    fn a_share_is_of_the_whole() {
        let budget: Money = "250".parse().unwrap();
        assert_eq!(budget.percent(80).to_string(), "200");
        assert_eq!(budget.percent(120).dollars(), 300.0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.e]{0,20}|\\PC{0,12}") {
            if let Ok(price) = text.parse::<Price>() {
                prop_assert_eq!(price.to_string().parse::<Price>().unwrap(), price);
            }
        }

        #[test]
        fn the_order_of_adding_does_not_matter(parts in proptest::collection::vec(0_i64..1 << 40, 1..20)) {
            let price = "0.000000123457".parse::<Price>().unwrap();
            let one_by_one: Money = parts.iter().map(|raw| price.cost(i128::from(*raw), Measure::Time)).sum();
            let backwards: Money = parts.iter().rev().map(|raw| price.cost(i128::from(*raw), Measure::Time)).sum();
            let at_once = price.cost(parts.iter().map(|raw| i128::from(*raw)).sum(), Measure::Time);
            prop_assert_eq!(one_by_one, backwards);
            prop_assert_eq!(one_by_one, at_once);
        }
    }
}
