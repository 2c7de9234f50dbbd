//! The form that all bodies have on their way, and those that are at hand as a whole.

use super::body_slots::BodySlot;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use std::error::Error;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Wraps a body in memory, whose slot is freed when it has been sent.
pub(super) fn held(bytes: Bytes, slot: BodySlot) -> Body {
    Full::new(bytes)
        .map_frame(move |frame| {
            let _held = &slot;
            frame
        })
        .map_err(|never| match never {})
        .boxed_unsync()
}
