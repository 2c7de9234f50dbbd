//! Asks the machine's name servers one question.

use crate::tcp;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use types::World;

/// How often all servers are asked.
const ROUNDS: usize = 2;
/// A size that passes through every network in one piece.
const UDP_BYTES_MAX: u16 = 1232;

/// No server gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unanswered;

#[derive(Debug)]
pub(super) struct Servers {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) wait: Duration,
}

impl Servers {
    pub(super) async fn ask(
        &self,
        world: &World,
        name: &Name,
        kind: RecordType,
    ) -> Result<Message, Unanswered> {
        for _ in 0..ROUNDS {
            for server in &self.servers {
                let answer = self.ask_one(*server, world, name, kind);
                match tokio::time::timeout(self.wait, answer).await {
                    Ok(Ok(answer)) => match answer.metadata.response_code {
                        ResponseCode::NoError | ResponseCode::NXDomain => return Ok(answer),
                        // Another server may know more.
                        _ => {}
                    },
                    Ok(Err(error)) => tracing::debug!(%server, %error, "cannot ask a name server"),
                    Err(_) => tracing::debug!(%server, "a name server does not answer"),
                }
            }
        }
        Err(Unanswered)
    }

    async fn ask_one(
        &self,
        server: SocketAddr,
        world: &World,
        name: &Name,
        kind: RecordType,
    ) -> io::Result<Message> {
        let id = u16::from_be_bytes(world.random_bytes());
        let query = Query::query(name.clone(), kind);
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES_MAX);
        message.set_edns(edns);
        let bytes = message.to_vec().map_err(io::Error::other)?;
        let answer = self.over_udp(server, &bytes, id, &query).await?;
        if answer.metadata.truncation {
            return self.over_tcp(server, &bytes, id, &query).await;
        }
        Ok(answer)
    }

    /// Asks from a new socket, whose port nobody can guess.
    async fn over_udp(
        &self,
        server: SocketAddr,
        bytes: &[u8],
        id: u16,
        query: &Query,
    ) -> io::Result<Message> {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(server).await?;
        socket.send(bytes).await?;
        let mut buffer = vec![0; 4096];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // A message that does not match may be forged; the right one may still arrive.
            if let Some(answer) = matching(&buffer[..length], id, query) {
                return Ok(answer);
            }
        }
    }

    async fn over_tcp(
        &self,
        server: SocketAddr,
        bytes: &[u8],
        id: u16,
        query: &Query,
    ) -> io::Result<Message> {
        let mut stream = tcp::connect(server, None, None).await?;
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
        let length = stream.read_u16().await?;
        let mut buffer = vec![0; length.into()];
        stream.read_exact(&mut buffer).await?;
        matching(&buffer, id, query)
            .filter(|answer| !answer.metadata.truncation)
            .ok_or_else(|| io::Error::other("the answer is to another question"))
    }
}

fn matching(bytes: &[u8], id: u16, query: &Query) -> Option<Message> {
    let message = Message::from_vec(bytes).ok()?;
    let is_answer = message.metadata.id == id
        && message.metadata.message_type == MessageType::Response
        && message.metadata.op_code == OpCode::Query;
    let [asked] = message.queries.as_slice() else { return None };
    let is_ours = asked.name.eq_ignore_root(&query.name)
        && asked.query_type == query.query_type
        && asked.query_class == query.query_class;
    (is_answer && is_ours).then_some(message)
}
