//! What an HTTP/2 host says in its first frame: whether it lets a request turn into a WebSocket (RFC
//! 8441), and how many requests it takes at once. Hyper knows this too, but tells only the task that
//! owns the connection, and not when the frame has arrived.

use std::sync::Arc;
use tokio::io::AsyncRead;
use tokio::sync::{Semaphore, watch};
use tokio_util::io::InspectReader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSockets {
    /// The host has not said anything yet.
    Unknown,
    Taken,
    Refused,
}

/// The requests that a connection may have at once: one until its host says how many, and never
/// more than `max`.
pub(super) struct Streams {
    pub(super) places: Arc<Semaphore>,
    pub(super) max: usize,
}

impl Streams {
    pub(super) fn new(max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(1)), max }
    }
}

/// Also if the host never says it, because its connection has ended.
impl Drop for Streams {
    fn drop(&mut self) {
        self.places.add_permits(self.max.saturating_sub(1));
    }
}

/// Reads the first frame of a connection along with whoever reads the connection, and tells what it
/// says.
pub(super) fn overhear<S: AsyncRead>(
    stream: S,
    tell: watch::Sender<WebSockets>,
    streams: Streams,
) -> InspectReader<S, impl FnMut(&[u8]) + Send + 'static> {
    let mut first = Some(First { bytes: Vec::new(), tell, streams });
    let hear = move |more: &[u8]| first = first.take().and_then(|first| first.hear(more));
    InspectReader::new(stream, hear)
}

/// The beginning of a first frame that is not known yet.
struct First {
    bytes: Vec<u8>,
    tell: watch::Sender<WebSockets>,
    streams: Streams,
}

impl First {
    /// Returns `None` as soon as the frame is known, or nothing more comes.
    fn hear(mut self, more: &[u8]) -> Option<Self> {
        self.bytes.extend_from_slice(more);
        let Said { web_sockets, streams_max } = read(&self.bytes);
        if web_sockets != WebSockets::Unknown {
            let max = streams_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
            self.streams.max = self.streams.max.min(max);
            self.tell.send_replace(web_sockets);
            return None;
        }
        (!more.is_empty()).then_some(self)
    }
}

const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// The largest frame that a host may send unless it is told otherwise.
const FRAME_BYTES_MAX: usize = 16 << 10;

struct Said {
    web_sockets: WebSockets,
    streams_max: Option<u32>,
}

/// Reads the beginning of what a host says. Anything but settings is no HTTP/2, which hyper finds
/// out for itself.
fn read(bytes: &[u8]) -> Said {
    let nothing = |web_sockets| Said { web_sockets, streams_max: None };
    let Some((&[a, b, c, kind, ..], payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return nothing(WebSockets::Unknown);
    };
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if kind != SETTINGS || length > FRAME_BYTES_MAX {
        return nothing(WebSockets::Refused);
    }
    let Some(settings) = payload.get(..length) else { return nothing(WebSockets::Unknown) };
    // If a setting is given twice, the last one counts.
    let value = |wanted: u16| {
        let is_it = |setting: &&[u8]| setting[..2] == wanted.to_be_bytes();
        let setting = settings.chunks_exact(6).rfind(is_it)?;
        setting[2..].try_into().map(u32::from_be_bytes).ok()
    };
    let web_sockets = match value(ENABLE_CONNECT_PROTOCOL) {
        Some(1) => WebSockets::Taken,
        _ => WebSockets::Refused,
    };
    Said { web_sockets, streams_max: value(MAX_CONCURRENT_STREAMS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let length = u8::try_from(settings.len() * 6).unwrap();
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        for (name, value) in settings {
            frame.extend(name.to_be_bytes());
            frame.extend(value.to_be_bytes());
        }
        frame
    }

    #[track_caller]
    fn check(bytes: &[u8], wanted: WebSockets) {
        assert_eq!(read(bytes).web_sockets, wanted);
        // In pieces, it is never something else before.
        let decided = (0..bytes.len()).map(|length| read(&bytes[..length]).web_sockets);
        assert!(decided.into_iter().all(|said| said == WebSockets::Unknown || said == wanted));
    }

    #[test]
    fn the_first_frame_says_it() {
        check(&frame(4, &[(3, 100), (8, 1)]), WebSockets::Taken);
        check(&frame(4, &[(8, 1), (4, 65_535), (8, 0)]), WebSockets::Refused);
        check(&frame(4, &[(3, 100)]), WebSockets::Refused);
        check(&frame(4, &[]), WebSockets::Refused);
        check(&frame(4, &[(8, 2)]), WebSockets::Refused);
        check(&frame(6, &[(8, 1)]), WebSockets::Refused);
        check(b"HTTP/1.1 400 Bad Request\r\n\r\n", WebSockets::Refused);
        let long = read(&[0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0]);
        assert_eq!(long.web_sockets, WebSockets::Refused);
    }

    #[test]
    fn the_first_frame_says_how_many_requests_there_may_be() {
        for (frame, wanted) in [
            (frame(4, &[(3, 4), (8, 1)]), 4),
            (frame(4, &[(3, 4), (3, 2)]), 2),
            (frame(4, &[(3, 0)]), 1),
            (frame(4, &[(3, u32::MAX)]), 8),
            (frame(4, &[(8, 1)]), 8),
            (frame(6, &[(3, 4)]), 8),
        ] {
            let streams = Streams::new(8);
            let places = Arc::clone(&streams.places);
            let (tell, _told) = watch::channel(WebSockets::Unknown);
            let first = First { bytes: Vec::new(), tell, streams }.hear(&frame[..4]).unwrap();
            assert_eq!(places.available_permits(), 1, "it is not known yet");
            assert!(first.hear(&frame[4..]).is_none());
            assert_eq!(places.available_permits(), wanted, "{frame:?}");
        }
    }

    #[tokio::test]
    async fn a_host_that_ends_before_it_says_it_is_not_waited_for() {
        use tokio::io::AsyncReadExt as _;
        let (tell, mut told) = watch::channel(WebSockets::Unknown);
        let streams = Streams::new(8);
        let places = Arc::clone(&streams.places);
        let mut stream = overhear(&b"\0\0\x06\x04"[..], tell, streams);
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"\0\0\x06\x04");
        assert!(told.wait_for(|said| *said != WebSockets::Unknown).await.is_err());
        assert_eq!(places.available_permits(), 8);
    }
}
