//! The `Range` header of reads.

use crate::error::{Code, Error};

/// The bytes that are wanted: the first one, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

enum Wanted {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large is beyond any end.
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}

fn wanted(text: &str) -> Option<Wanted> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", last) => Some(Wanted::Last(number(last)?)),
        (first, "") => Some(Wanted::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Wanted::Between(first, last))
        }
    }
}

/// Reads a range for something of `size` bytes. Returns `None` for all of it: anything but a single
/// valid range is ignored.
pub(crate) fn read(text: &str, size: u64) -> Result<Option<Span>, Error> {
    let unsatisfiable =
        || Error::new(Code::InvalidRange, "The requested range is not within the object.");
    let (start, end) = match wanted(text) {
        None => return Ok(None),
        Some(Wanted::From(start)) => (start, size),
        Some(Wanted::Between(first, last)) => (first, last.saturating_add(1).min(size)),
        Some(Wanted::Last(length)) => (size.saturating_sub(length), size),
    };
    if start >= end {
        return Err(unsatisfiable());
    }
    Ok(Some(Span { start, length: end - start }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read() {
        let span = |start, length| Some(Some(Span { start, length }));
        for (text, expect) in [
            ("bytes=0-9", span(0, 10)),
            ("bytes=5-", span(5, 5)),
            ("bytes=-3", span(7, 3)),
            ("bytes=-99", span(0, 10)),
            ("bytes=9-99999999999999999999999", span(9, 1)),
            ("bytes=10-", None),
            ("bytes=-0", None),
            ("bytes=5-4", Some(None)),
            ("bytes=0-1,3-4", Some(None)),
            ("items=0-1", Some(None)),
            ("bytes=+1-2", Some(None)),
            ("bytes=-", Some(None)),
        ] {
            assert_eq!(read(text, 10).ok(), expect, "{text}");
        }
        assert!(read("bytes=0-0", 0).is_err());
    }

    proptest! {
        #[test]
        fn a_range_lies_within(text in "(bytes=)?[0-9]{0,22}-[0-9]{0,22}", size: u64) {
            if let Ok(Some(span)) = read(&text, size) {
                prop_assert!(span.length > 0);
                prop_assert!(span.start.checked_add(span.length).is_some_and(|end| end <= size));
            }
        }
    }
}
