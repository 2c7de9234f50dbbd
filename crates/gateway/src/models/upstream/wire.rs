//! One HTTP/1.1 connection to a provider.

use super::dial::Stream;
use super::pieces::Pieces;
use crate::wire::Http1;
use http::Request;
use hyper::client::conn::TrySendError;

pub(super) type Wire = Http1<Stream, Pieces>;

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// Nothing was written: the request comes back.
    Unsent(Box<Request<Pieces>>),
    Broken(hyper::Error),
}

impl NoAnswer {
    pub(super) fn of(mut failed: TrySendError<Request<Pieces>>) -> Self {
        match failed.take_message() {
            Some(request) => Self::Unsent(Box::new(request)),
            None => Self::Broken(failed.into_error()),
        }
    }
}
