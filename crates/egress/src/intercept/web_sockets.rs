//! Whether an HTTP/2 host lets a request turn into a WebSocket (RFC 8441), which it says in its first
//! frame. Hyper knows this too, but tells only the task that owns the connection, and not when the
//! frame has arrived.

use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio_util::io::InspectReader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSockets {
    /// The host has not said anything yet.
    Unknown,
    Taken,
    Refused,
}

/// Reads the first frame of a connection along with whoever reads the connection, and tells what it
/// says.
pub(super) fn overhear<S: AsyncRead>(
    stream: S,
    tell: watch::Sender<WebSockets>,
) -> InspectReader<S, impl FnMut(&[u8]) + Send + 'static> {
    let mut first = Some(First { bytes: Vec::new(), tell });
    let hear = move |more: &[u8]| first = first.take().and_then(|first| first.hear(more));
    InspectReader::new(stream, hear)
}

/// The beginning of a first frame that is not known yet.
struct First {
    bytes: Vec<u8>,
    tell: watch::Sender<WebSockets>,
}

impl First {
    /// Returns `None` as soon as the frame is known, or nothing more comes.
    fn hear(mut self, more: &[u8]) -> Option<Self> {
        self.bytes.extend_from_slice(more);
        let said = read(&self.bytes);
        if said != WebSockets::Unknown {
            self.tell.send_replace(said);
            return None;
        }
        (!more.is_empty()).then_some(self)
    }
}

const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// The largest frame that a host may send unless it is told otherwise.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// Reads the beginning of what a host says. Anything but settings is no HTTP/2, which hyper finds
/// out for itself.
fn read(bytes: &[u8]) -> WebSockets {
    let Some((&[a, b, c, kind, ..], payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return WebSockets::Unknown;
    };
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if kind != SETTINGS || length > FRAME_BYTES_MAX {
        return WebSockets::Refused;
    }
    let Some(settings) = payload.get(..length) else { return WebSockets::Unknown };
    let mut settings = settings.chunks_exact(6).map(|setting| {
        let (name, value) = setting.split_at(2);
        (u16::from_be_bytes([name[0], name[1]]), value)
    });
    // If it is given twice, the last one counts.
    match settings.rfind(|(name, _)| *name == ENABLE_CONNECT_PROTOCOL) {
        Some((_, [0, 0, 0, 1])) => WebSockets::Taken,
        _ => WebSockets::Refused,
    }
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
        assert_eq!(read(bytes), wanted);
        // In pieces, it is never something else before.
        let decided = (0..bytes.len()).map(|length| read(&bytes[..length]));
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
        assert_eq!(read(&[0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0]), WebSockets::Refused);
    }

    #[tokio::test]
    async fn a_host_that_ends_before_it_says_it_is_not_waited_for() {
        use tokio::io::AsyncReadExt as _;
        let (tell, mut told) = watch::channel(WebSockets::Unknown);
        let mut stream = overhear(&b"\0\0\x06\x04"[..], tell);
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"\0\0\x06\x04");
        assert!(told.wait_for(|said| *said != WebSockets::Unknown).await.is_err());
    }
}
