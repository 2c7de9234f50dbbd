//! `holm port-forward`: makes ports of a sandbox available on this machine.

mod forward;

use crate::client::Client;
use crate::client::target::resolve;
use crate::client::workload::Workload;
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use crate::term;
use forward::Forward;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Makes ports of a sandbox available on this machine
///
/// HTTP and WebSocket are forwarded with your credentials. Other TCP protocols, such as those of
/// databases, cannot be: the sandboxes' API does not support them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm port-forward box 3000            # http://127.0.0.1:3000
  holm port-forward box 8080:3000 :5173 # any free port for 5173")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// LOCAL:REMOTE, or one number for both; without LOCAL, any free port
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    ports: Vec<String>,
    /// Address to listen on. Anybody who can reach it can use the sandbox with your credentials
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

/// Further connections wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// Pause after `accept` fails, for example for lack of memory or file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let pairs: Vec<_> = args.ports.iter().map(|text| read(text)).collect::<Result<_, Error>>()?;
    let target = resolve(&["sandboxes".into(), args.sandbox.clone()])?;
    let sandbox = Arc::new(Workload::find(client, &target).await?);
    let mut ends = Ends::new()?;
    for (local, remote) in pairs {
        let address = SocketAddr::new(args.address, local);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(Error::io(format!("listen on {address}")))?;
        let own = listener.local_addr().map_err(Error::io("listen"))?;
        term::say(format!("http://{own} is port {remote} of {}", sandbox.name));
        let is_local = args.address.is_loopback();
        let forward = Forward { sandbox: sandbox.clone(), port: remote, is_local };
        tokio::spawn(listen(listener, Arc::new(forward)));
    }
    ends.next().await;
    Ok(Exit::Interrupted)
}

fn read(text: &str) -> Result<(u16, u16), Error> {
    let wrong = || Error::Usage(format!("`{text}` is not LOCAL:REMOTE, such as 8080:3000"));
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let local = if local.is_empty() { "0" } else { local };
    let remote: u16 = remote.parse().map_err(|_| wrong())?;
    if remote == 0 {
        return Err(wrong());
    }
    Ok((local.parse().map_err(|_| wrong())?, remote))
}

async fn listen(listener: TcpListener, forward: Arc<Forward>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let forward = forward.clone();
        tokio::spawn(async move {
            serve(stream, forward).await;
            drop(place);
        });
    }
}

async fn serve(stream: TcpStream, forward: Arc<Forward>) {
    let service = service_fn(|request| {
        let forward = forward.clone();
        async move { Ok::<_, Infallible>(forward.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await
        && error.is_parse()
    {
        term::note("a caller did not speak HTTP: only HTTP and WebSocket can be forwarded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ports_may_be_short() {
        assert_eq!(read("8080:3000").unwrap(), (8080, 3000));
        assert_eq!(read("3000").unwrap(), (3000, 3000));
        assert_eq!(read(":3000").unwrap(), (0, 3000));
        for wrong in ["", ":", "a", "1:0", "70000", "1:2:3"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
