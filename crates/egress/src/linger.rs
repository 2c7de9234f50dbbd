//! Goes on reading what a client still sends after it got its answer.
//!
//! A client that is refused is often still sending. Then the rest of its body meets a stream that
//! was reset (HTTP/2) or a connection that is closed (HTTP/1.1), and curl, and programs that use
//! its library, report a protocol error instead of the answer. So the rest is read and discarded
//! for a while.

use bytes::Bytes;
use http::{Request, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long to read on, and for how many requests at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Linger {
    places: Arc<Semaphore>,
    time: Duration,
}

impl Linger {
    pub fn new(time: Duration, places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), time }
    }

    /// Wraps a request so that its body is read on if it is dropped before its end.
    pub fn over<B>(&self, request: Request<B>) -> Request<Lingering<B>>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        // The sender waits to be asked for the body, which is not worth asking for.
        let is_asked_for = !request.headers().contains_key(header::EXPECT);
        let linger = self.clone();
        request.map(|body| Lingering { body: Some(body), is_asked_for, linger })
    }

    fn read_on<B>(&self, mut body: B)
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        // If there are too many of them, senders have to live with the reset.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let time = self.time;
        runtime.spawn(async move {
            let _place = place;
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            // A sender that takes longer than that is cut off.
            let _ = tokio::time::timeout(time, rest).await;
        });
    }
}

/// The body of a request, read on after it is dropped.
pub struct Lingering<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    /// `None` only while it is being dropped.
    body: Option<B>,
    is_asked_for: bool,
    linger: Linger,
}

impl<B> HttpBody for Lingering<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.is_asked_for = true;
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl<B> Drop for Lingering<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream())
            && self.is_asked_for
        {
            self.linger.read_on(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A body that arrives in pieces and counts how many were read.
    struct Pieces {
        left: usize,
        read: Arc<AtomicUsize>,
    }

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match self.left.checked_sub(1) {
                Some(left) => {
                    self.left = left;
                    self.read.fetch_add(1, Ordering::Relaxed);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
                }
                // The rest never arrives.
                None => Poll::Pending,
            }
        }
    }

    fn request(linger: &Linger, expects: bool) -> (Request<Lingering<Pieces>>, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let mut request = Request::new(Pieces { left: 5, read: Arc::clone(&read) });
        if expects {
            let expect = http::HeaderValue::from_static("100-continue");
            request.headers_mut().insert(header::EXPECT, expect);
        }
        (linger.over(request), read)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_read_for_a_while_by_as_many_as_there_are_places_for() {
        let linger = Linger::new(Duration::from_secs(5), 1);
        let [(first, read), (second, too_many)] = [false; 2].map(|it| request(&linger, it));
        drop((first, second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((read.load(Ordering::Relaxed), too_many.load(Ordering::Relaxed)), (5, 0));
        assert_eq!(linger.places.available_permits(), 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(linger.places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_to_be_asked_for_is_not() {
        let linger = Linger::new(Duration::from_secs(5), 9);
        let (request, read) = request(&linger, true);
        drop(request);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }
}
