//! Parses the `Range` header of a download.

/// The part of a file that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    Whole,
    Part { start: u64, length: u64 },
    Outside,
}

impl Range {
    /// Parses the header for a file of `size` bytes. Anything but one well-formed byte range means
    /// the whole file, which a server may always send.
    pub(crate) fn parse(header: Option<&str>, size: u64) -> Self {
        let one = header.and_then(|header| header.trim().strip_prefix("bytes=")).map(str::trim);
        let Some((first, last)) = one.and_then(|range| range.split_once('-')) else {
            return Self::Whole;
        };
        match (position(first), position(last)) {
            (Position::Absent, Position::At(0)) => Self::Outside,
            (Position::Absent, Position::At(count)) => {
                Self::part(size.saturating_sub(count), size, size)
            }
            (Position::At(start), Position::Absent) => Self::part(start, size, size),
            (Position::At(start), Position::At(last)) if last >= start => {
                Self::part(start, last.saturating_add(1), size)
            }
            _ => Self::Whole,
        }
    }

    fn part(start: u64, end: u64, size: u64) -> Self {
        if start >= size {
            return Self::Outside;
        }
        Self::Part { start, length: end.min(size) - start }
    }
}

enum Position {
    Absent,
    At(u64),
    Broken,
}

fn position(text: &str) -> Position {
    match text {
        "" => Position::Absent,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            // A number with too many digits is a position beyond the end of any file.
            Position::At(digits.parse().unwrap_or(u64::MAX))
        }
        _ => Position::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: &str, expect: Range) {
        assert_eq!(Range::parse(Some(header), 100), expect, "{header}");
    }

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        check("bytes=0-9", Range::Part { start: 0, length: 10 });
        check("bytes=90-", Range::Part { start: 90, length: 10 });
        check("bytes=-7", Range::Part { start: 93, length: 7 });
        check("bytes=-700", Range::Part { start: 0, length: 100 });
        check("bytes=95-400", Range::Part { start: 95, length: 5 });
        check("bytes=100-", Range::Outside);
        check("bytes=-0", Range::Outside);
        check("bytes=99999999999999999999999-", Range::Outside);
    }

    #[test]
    fn what_is_not_one_range_means_the_whole_file() {
        for header in [
            "bytes=0-1,4-5",
            "bytes=5-1",
            "lines=1-2",
            "bytes=a-b",
            "bytes=-",
            "bytes",
            "bytes=+1-2",
            "",
        ] {
            check(header, Range::Whole);
        }
        assert_eq!(Range::parse(None, 100), Range::Whole);
    }

    proptest! {
        #[test]
        fn a_part_is_never_outside_the_file(header in "bytes=[0-9,-]{0,30}|\\PC{0,30}", size in any::<u64>()) {
            if let Range::Part { start, length } = Range::parse(Some(&header), size) {
                prop_assert!(length > 0);
                prop_assert!(start.checked_add(length).is_some_and(|end| end <= size));
            }
        }
    }
}
