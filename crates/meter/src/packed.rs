//! A day of a class, packed as two texts: what each series used in the day, and in each hour. Beside
//! them are numbers for all series together.
//!
//! Both texts are bytes in base64, since the store has only whole numbers and texts. A series is
//! written as its distance from the one before, an amount in the fewest bytes that hold it. An hour
//! with the same amount as the hour before takes one byte; most hours of something that runs
//! throughout are like this.
//!
//! A day of 10,000 series is 50 to 200 KiB. So 90 days of a few classes are a few hundred rows,
//! which are read and added up in the time that a database takes to return some thousand rows. That
//! is what makes questions fast.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::collections::BTreeMap;
use store::Error;
use store::usage::{Day, HourTotals};

const HOURS: usize = 24;

/// What is used in each hour of a day.
pub(crate) type Amounts = [i64; HOURS];

/// The hours of all series of a day, ordered by series, with each series once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Content(Vec<(i64, Amounts)>);

impl Content {
    pub(crate) fn read(hours: &str, day: i64) -> Result<Self, Error> {
        let mut content = Vec::new();
        each_series(hours, day, |series, amounts| content.push((series, *amounts)))?;
        if content.is_sorted_by(|(one, _), (next, _)| one < next) {
            Ok(Self(content))
        } else {
            Err(corrupt(day))
        }
    }

    /// Adds amounts that are not packed yet: series, hour of the day, amount.
    pub(crate) fn add(&mut self, added: impl IntoIterator<Item = (i64, i64, i64)>) {
        let mut more: BTreeMap<i64, Amounts> = BTreeMap::new();
        for (series, hour, amount) in added {
            let hours = more.entry(series).or_insert([0; HOURS]);
            if let Some(sum) = usize::try_from(hour).ok().and_then(|hour| hours.get_mut(hour)) {
                *sum = sum.saturating_add(amount);
            }
        }
        for (series, amounts) in &mut self.0 {
            for (sum, amount) in amounts.iter_mut().zip(more.remove(series).unwrap_or_default()) {
                *sum = sum.saturating_add(amount);
            }
        }
        if !more.is_empty() {
            self.0.extend(more);
            self.0.sort_unstable_by_key(|(series, _)| *series);
        }
    }

    pub(crate) fn series(&self) -> impl Iterator<Item = (i64, &Amounts)> {
        self.0.iter().map(|(series, amounts)| (*series, amounts))
    }

    pub(crate) fn write(&self, class: i64, day: i64) -> Day {
        let (mut sums, mut hours) = (Writer::default(), Writer::default());
        let (mut total, mut hour_totals) = (0_i128, HourTotals::default());
        for (series, amounts) in
            self.0.iter().filter(|(_, amounts)| amounts.iter().any(|amount| *amount != 0))
        {
            let sum = amounts.iter().fold(0_i64, |sum, amount| sum.saturating_add(*amount));
            total += i128::from(sum);
            sums.series(*series);
            sums.signed(sum);
            hours.series(*series);
            hours.amounts(amounts);
            add(&mut hour_totals, amounts);
        }
        let hour_totals = Some(hour_totals);
        Day { class, day, total, hour_totals, sums: sums.text(), hours: hours.text() }
    }
}

/// Reads the sum of each series.
pub(crate) fn each_sum(sums: &str, day: i64, mut visit: impl FnMut(i64, i64)) -> Result<(), Error> {
    let bytes = decoded(sums, day)?;
    let (mut reader, mut series) = (Reader(&bytes), 0_i64);
    while !reader.0.is_empty() {
        series = reader.series(series).ok_or_else(|| corrupt(day))?;
        visit(series, reader.signed().ok_or_else(|| corrupt(day))?);
    }
    Ok(())
}

/// Reads the hours of each series.
pub(crate) fn each_series(
    hours: &str,
    day: i64,
    mut visit: impl FnMut(i64, &Amounts),
) -> Result<(), Error> {
    let bytes = decoded(hours, day)?;
    let (mut reader, mut series) = (Reader(&bytes), 0_i64);
    while !reader.0.is_empty() {
        series = reader.series(series).ok_or_else(|| corrupt(day))?;
        let mask = reader.unsigned().ok_or_else(|| corrupt(day))?;
        let (mut before, mut amounts) = (0, [0; HOURS]);
        for (hour, amount) in amounts.iter_mut().enumerate() {
            if mask >> hour & 1 == 1 {
                let written = reader.signed().ok_or_else(|| corrupt(day))?;
                before = if written == 0 { before } else { written };
                *amount = before;
            }
        }
        visit(series, &amounts);
    }
    Ok(())
}

/// Returns what all series of a day used together, for a day that has only their hours.
pub(crate) fn hour_totals(hours: &str, day: i64) -> Result<HourTotals, Error> {
    let mut totals = HourTotals::default();
    each_series(hours, day, |_, amounts| add(&mut totals, amounts))?;
    Ok(totals)
}

fn add(totals: &mut HourTotals, amounts: &Amounts) {
    totals.iter_mut().zip(amounts).for_each(|(total, amount)| *total += i128::from(*amount));
}

fn decoded(text: &str, day: i64) -> Result<Vec<u8>, Error> {
    STANDARD_NO_PAD.decode(text).map_err(|_| corrupt(day))
}

fn corrupt(day: i64) -> Error {
    Error::corrupt("usage_days", day.to_string(), "it is not a packed day")
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    last_series: i64,
}

impl Writer {
    fn series(&mut self, series: i64) {
        self.unsigned(series.wrapping_sub(self.last_series).cast_unsigned());
        self.last_series = series;
    }

    /// Writes which hours have an amount, then the amounts; 0 stands for the amount before.
    fn amounts(&mut self, amounts: &[i64; HOURS]) {
        let mask = amounts
            .iter()
            .enumerate()
            .filter(|(_, amount)| **amount != 0)
            .fold(0, |mask, (hour, _)| mask | 1 << hour);
        self.unsigned(mask);
        let mut before = 0;
        for amount in amounts.iter().filter(|amount| **amount != 0) {
            self.signed(if *amount == before { 0 } else { *amount });
            before = *amount;
        }
    }

    /// Writes numbers near 0 in few bytes, whatever their sign.
    fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// Writes seven bits in a byte, the lowest first; the eighth bit says that more follow.
    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn text(self) -> String {
        STANDARD_NO_PAD.encode(self.bytes)
    }
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn series(&mut self, last: i64) -> Option<i64> {
        Some(last.wrapping_add(self.unsigned()?.cast_signed()))
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_day_reads_back_as_written(
            amounts in proptest::collection::vec((1_i64..1 << 40, 0_i64..24, -9_i64..1 << 50), 0..200)
        ) {
            let mut content = Content::default();
            content.add(amounts);
            let day = content.write(1, 7);
            content.0.retain(|(_, amounts)| amounts.iter().any(|amount| *amount != 0));
            prop_assert_eq!(Content::read(&day.hours, 7).unwrap(), content);
            let mut total = 0;
            each_sum(&day.sums, 7, |_, sum| total += i128::from(sum)).unwrap();
            let by_hour = hour_totals(&day.hours, 7).unwrap();
            prop_assert_eq!(total, day.total);
            prop_assert_eq!(by_hour.iter().sum::<i128>(), day.total);
            prop_assert_eq!(Some(by_hour), day.hour_totals);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[A-Za-z0-9+/]{0,60}") {
            let _ = each_sum(&text, 1, |_, _| {});
            let _ = Content::read(&text, 1);
        }
    }

    #[test]
    fn what_runs_throughout_is_small() {
        let mut content = Content::default();
        let of = |series| (0..24).map(move |hour| (series, hour, 2048 * 3_600_000));
        content.add((1..=1000).flat_map(of));
        let day = content.write(1, 1);
        assert!(
            day.sums.len() < 10_000 && day.hours.len() < 47_000,
            "{} {}",
            day.sums.len(),
            day.hours.len()
        );
    }
}
