//! Makes TCP connections, and sets how their sockets behave.

use admission::UNSENT_BYTES_MAX;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// How long a connection is silent before it is probed, and the time between probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Makes one connection, from its own address if it has one.
pub(crate) async fn connect(
    to: SocketAddr,
    source: Option<IpAddr>,
    mark: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    if let Some(source) = source {
        // The address may be routed here without belonging to an interface.
        match source {
            IpAddr::V4(_) => socket.set_freebind_v4(true)?,
            IpAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
        socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
    }
    let stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
    tune(&stream)?;
    Ok(stream)
}

/// Makes small writes go out at once, keeps little for a peer that does not read, and detects one
/// that has vanished. Used for both sides.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn little_is_kept_for_a_peer_that_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let (stream, _peer) = tokio::join!(connect(to, None, None), listener.accept());
        let (stream, piece, mut taken) = (stream.unwrap(), vec![0; 64 << 10], 0);
        let write = async {
            while stream.writable().await.is_ok() {
                if let Ok(some) = stream.try_write(&piece) {
                    taken += some;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
        assert!((1..1 << 20).contains(&taken), "{taken}");
    }
}
