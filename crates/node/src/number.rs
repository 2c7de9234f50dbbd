//! Numbers that are known to fit.

use std::fmt;

/// A number in the type that the kernel wants it in. Constants of the kernel and lengths of what
/// the node itself lays out always fit; should one not, going on would ask for something else.
#[expect(clippy::expect_used, reason = "a number that does not fit is a mistake in this program")]
#[track_caller]
pub(crate) fn fit<To, From>(number: From) -> To
where
    To: TryFrom<From, Error: fmt::Debug>,
{
    To::try_from(number).expect("the number fits")
}
