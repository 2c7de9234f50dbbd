//! Where the time of a request went, for the `Server-Timing` header of its answer.

use http::HeaderValue;
use std::fmt::Write;
use std::time::Duration;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Until the workload had an instance: checking credentials, and waiting for a start.
    pub(crate) queue: Duration,
    pub(crate) wake: Duration,
    pub(crate) connect: Duration,
    /// From sending the request to the head of the answer.
    pub(crate) workload: Duration,
}

impl Timing {
    #[expect(clippy::expect_used, reason = "a string takes any text, and this text is ASCII")]
    pub(crate) fn header(self) -> HeaderValue {
        let mut text = String::with_capacity(96);
        let parts = [
            ("queue", self.queue),
            ("wake", self.wake),
            ("connect", self.connect),
            ("workload", self.workload),
        ];
        for (index, (name, time)) in parts.into_iter().enumerate() {
            let (separator, us) = (if index == 0 { "" } else { ", " }, time.as_micros());
            write!(text, "{separator}{name};dur={}.{:03}", us / 1000, us % 1000)
                .expect("a string takes any text");
        }
        HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).expect("ASCII is a header value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_milliseconds() {
        let timing = Timing { wake: Duration::from_micros(12_034), ..Timing::default() };
        let header = timing.header();
        assert_eq!(
            header,
            "queue;dur=0.000, wake;dur=12.034, connect;dur=0.000, workload;dur=0.000"
        );
    }
}
