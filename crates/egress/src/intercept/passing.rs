//! Bodies that are passed on piece by piece.

use super::body::BoxError;
use super::progress::{Leash, UnderWay};
use super::upstream::Return;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the rules no longer let this pass")]
    Blocked,
    #[error("nothing moved for too long")]
    Quiet,
}

/// A body that is passed on as long as it moves and the rules allow it.
pub(super) struct Passing<B> {
    body: B,
    leash: Leash,
    idle_timeout: Duration,
    quiet: Option<Pin<Box<Sleep>>>,
    /// Released at the end of an answer.
    _under_way: Option<UnderWay>,
    connection: Option<Return>,
}

impl<B> Passing<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    pub(super) fn request(body: B, leash: Leash, idle_timeout: Duration) -> Self {
        Self { body, leash, idle_timeout, quiet: None, _under_way: None, connection: None }
    }

    pub(super) fn answer(
        body: B,
        leash: Leash,
        idle_timeout: Duration,
        under_way: UnderWay,
        connection: Option<Return>,
    ) -> Self {
        let mut passing = Self::request(body, leash, idle_timeout);
        passing._under_way = Some(under_way);
        passing.connection = connection;
        passing.give_back_at_end();
        passing
    }

    /// Gives the connection back for the next request if the answer is complete.
    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.connection.take().into_iter().for_each(Return::give_back);
        }
    }

    fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let idle_timeout = self.idle_timeout;
        let quiet = self.quiet.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        if quiet.as_mut().poll(cx).is_pending() {
            return false;
        }
        // The other direction may have moved.
        let left = idle_timeout.saturating_sub(self.leash.progress().quiet());
        if left.is_zero() {
            return true;
        }
        quiet.as_mut().reset(Instant::now() + left);
        quiet.as_mut().poll(cx).is_ready()
    }
}

impl<B> HttpBody for Passing<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if !this.leash.holds() {
                    return Poll::Ready(Some(Err(Ended::Blocked.into())));
                }
                this.give_back_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                this.connection.take().into_iter().for_each(Return::give_back);
                Poll::Ready(None)
            }
            Poll::Pending if this.is_quiet(cx) => Poll::Ready(Some(Err(Ended::Quiet.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
