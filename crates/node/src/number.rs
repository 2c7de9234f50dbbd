//! Conversions of numbers that are known to fit.

use std::fmt;

/// Converts a number into the type that the kernel wants. Kernel constants, and lengths of what the
/// node itself lays out, always fit. If one does not, this panics, because going on would ask the
/// kernel for something else.
#[expect(clippy::expect_used, reason = "a number that does not fit is a mistake in this program")]
#[track_caller]
pub(crate) fn fit<To, From>(number: From) -> To
where
    To: TryFrom<From, Error: fmt::Debug>,
{
    To::try_from(number).expect("the number fits")
}
