//! Makes TCP connections, and sets how their sockets behave.

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

/// Makes small writes go out at once, and detects a peer that has vanished. Used for both sides.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}
