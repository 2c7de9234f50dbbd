//! A caller of etcd over gRPC, its own protocol, written by hand so that it costs as little as the
//! other caller.

use crate::acts::{Act, body, name};
use crate::load::Caller;
use anyhow::{bail, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderValue, Method, Request, Uri};
use std::str::FromStr as _;
use tokio::net::TcpStream;

pub(crate) struct Grpc {
    requests: SendRequest<Bytes>,
    put: Uri,
    range: Uri,
}

impl Grpc {
    pub(crate) async fn connect(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(stream).await?;
        // It ends with the last of its requests, which see any failure.
        tokio::task::spawn_local(async move { drop(connection.await) });
        let at = |call: &str| Uri::from_str(&format!("http://{address}/etcdserverpb.KV/{call}"));
        Ok(Self { requests, put: at("Put")?, range: at("Range")? })
    }

    async fn ask(&mut self, address: Uri, message: &[u8]) -> anyhow::Result<Bytes> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = address;
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        futures_util::future::poll_fn(|context| self.requests.poll_ready(context)).await?;
        let (answer, mut stream) = self.requests.send_request(request, false)?;
        stream.send_data(framed(message), true)?;
        let mut body = answer.await?.into_body();
        let mut received = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            received.put(part);
        }
        let trailers = body.trailers().await?;
        let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "etcd refused: {trailers:?}");
        Ok(received.freeze())
    }
}

/// Returns a message as gRPC frames it: the flag for no compression, its length, and the message.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Appends a field of bytes as Protocol Buffers encode it. `number` is below 16, so that its tag is
/// one byte.
fn field(message: &mut Vec<u8>, number: u8, value: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = value.len();
    while length >= 0x80 {
        message.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(value);
}

impl Caller for Grpc {
    type Act = Act;

    async fn call(&mut self, act: Act) -> anyhow::Result<()> {
        let (object, value) = match act {
            Act::Make { object } => (object, Some(0)),
            Act::Put { object, value } => (object, Some(value)),
            Act::Get { object } => (object, None),
            Act::List { .. } => bail!("lists are not compared"),
        };
        let mut message = Vec::with_capacity(512);
        field(&mut message, 1, name(object).as_bytes());
        match value {
            Some(value) => {
                field(&mut message, 2, body(object, value).as_bytes());
                self.ask(self.put.clone(), &message).await?;
            }
            None => {
                let answer = self.ask(self.range.clone(), &message).await?;
                ensure!(answer.len() > name(object).len(), "the object is not there");
            }
        }
        Ok(())
    }
}
