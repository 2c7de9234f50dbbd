//! Reads what a client still sends after it got its answer, and tells a client whose body nobody
//! asked for not to use the connection again.
//!
//! A client that is refused is often still sending. Then the rest of its body meets a stream that
//! was reset (HTTP/2) or a connection that is closed (HTTP/1.1), and curl, and programs that use
//! its library, report a protocol error instead of the answer. So the rest is read and discarded
//! for a while.
//!
//! A client that waits to be asked for its body (`Expect: 100-continue`) may leave it out when it
//! gets an answer first. The HTTP library looks for that body once more after the answer, and takes
//! the beginning of the next request for it: a client of AWS that uploads one byte then lost the
//! `P` of its next `PUT`. So such an answer closes the connection.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long to read on, and for how many requests at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Linger {
    pub(crate) places: Arc<Semaphore>,
    pub(crate) time: Duration,
}

impl Linger {
    pub fn new(time: Duration, places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), time }
    }

    /// Wraps a request so that its body is read on if it is dropped before its end. Whatever
    /// answers the request has to be passed to [`Expected::tell`].
    pub fn over<B>(&self, request: Request<B>) -> (Request<Lingering<B>>, Expected)
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        let waits = request.headers().contains_key(header::EXPECT);
        let expected = Expected {
            asked: waits.then(Arc::default),
            is_http1: request.version() <= Version::HTTP_11,
        };
        let (linger, asked) = (self.clone(), expected.asked.clone());
        (request.map(|body| Lingering { body: Some(body), asked, linger }), expected)
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

/// Whether a request waits to be asked for its body.
#[derive(Debug)]
pub struct Expected {
    /// Whether the body was asked for. `None` if it comes without being asked for.
    asked: Option<Arc<AtomicBool>>,
    is_http1: bool,
}

impl Expected {
    /// Tells the client not to use the connection again if its body was not asked for.
    pub fn tell<B>(&self, mut response: Response<B>) -> Response<B> {
        let is_left_out = self.asked.as_ref().is_some_and(|it| !it.load(Ordering::Relaxed));
        if is_left_out && self.is_http1 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}

/// The body of a request, read on after it is dropped.
pub struct Lingering<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
{
    /// `None` only while it is being dropped.
    body: Option<B>,
    /// As in [`Expected`].
    asked: Option<Arc<AtomicBool>>,
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
        if let Some(asked) = &self.asked {
            asked.store(true, Ordering::Relaxed);
        }
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
            // A body that was not asked for is not worth asking for.
            && self.asked.as_ref().is_none_or(|asked| asked.load(Ordering::Relaxed))
        {
            self.linger.read_on(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

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

    fn request(expects: bool) -> (Request<Pieces>, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let mut request = Request::new(Pieces { left: 5, read: Arc::clone(&read) });
        if expects {
            let expect = HeaderValue::from_static("100-continue");
            request.headers_mut().insert(header::EXPECT, expect);
        }
        (request, read)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_read_for_a_while_by_as_many_as_there_are_places_for() {
        let linger = Linger::new(Duration::from_secs(5), 1);
        let [(first, read), (second, too_many)] = [false; 2].map(request);
        drop([first, second].map(|request| linger.over(request)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((read.load(Ordering::Relaxed), too_many.load(Ordering::Relaxed)), (5, 0));
        assert_eq!(linger.places.available_permits(), 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(linger.places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_to_be_asked_for_is_not() {
        let linger = Linger::new(Duration::from_secs(5), 9);
        let (request, read) = request(true);
        drop(linger.over(request));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn only_a_body_that_was_not_asked_for_closes_the_connection() {
        for (expects, is_read, version, closes) in [
            (true, false, Version::HTTP_11, true),
            (true, false, Version::HTTP_2, false),
            (true, true, Version::HTTP_11, false),
            (false, false, Version::HTTP_11, false),
        ] {
            let linger = Linger::new(Duration::from_secs(5), 9);
            let (mut request, _) = request(expects);
            *request.version_mut() = version;
            let (mut request, expected) = linger.over(request);
            if is_read {
                request.body_mut().frame().await.unwrap().unwrap();
            }
            let response = expected.tell(Response::new(()));
            let said = response.headers().get(header::CONNECTION).is_some_and(|it| it == "close");
            assert_eq!(said, closes, "{expects} {is_read} {version:?}");
        }
    }
}
