//! Starts the guest of an instance, and speaks to it over the connection that it serves.

use crate::{Inner, LocalMachine};
use admission::Bounded;
use bytes::Bytes;
use gateway::Machine as _;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use node::{FirstProcess, InstanceName, Program};
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio::time::timeout;
use types::guest::{
    LISTENER_VARIABLE, PROGRAM_PATH, SECRET_HEADER, SETTINGS_VARIABLE, START_FAILURE_BYTES_MAX,
    START_PATH, START_WATCH, Settings,
};

/// How many pieces of the guest program are on their way at once, and their size. This is the
/// memory that one hand-over takes.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 << 10;
/// Extra time for the answer to arrive after the guest's own waiting time.
const ANSWER_GRACE: Duration = Duration::from_secs(10);
/// What the guest may send before its answer: the head, and what hyper reads with it.
const BEFORE_ANSWER_BYTES_MAX: usize = 1 << 20;

type Pieces = Sender<Bytes, io::Error>;

impl Inner {
    /// Returns how the guest is started, with the data of its work if it has any.
    pub(crate) fn first_process(
        &self,
        port: u16,
        settings: &Settings,
        data: &[u8],
    ) -> FirstProcess {
        #[expect(clippy::expect_used, reason = "texts and numbers always have a form in JSON")]
        let mut config = serde_json::to_vec(settings).expect("settings as JSON");
        if !data.is_empty() {
            config.push(b'\n');
            config.extend_from_slice(data);
        }
        FirstProcess {
            program: self.guest.clone(),
            arguments: vec!["holm-guest".to_owned()],
            environment: vec![
                format!("{LISTENER_VARIABLE}={}", node::LISTENER_FD),
                format!("{SETTINGS_VARIABLE}={}", node::CONFIG_FD),
            ],
            listen: Some(port),
            config: Some(config),
        }
    }
}

impl LocalMachine {
    /// Sends one request to the guest of an instance.
    pub(crate) async fn ask_guest<B>(
        &self,
        id: &InstanceName,
        request: request::Builder,
        body: B,
    ) -> io::Result<Response<Incoming>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let port = self.0.leases.purpose(id).guest_port();
        let stream = self.connect(id.as_str(), port).await?;
        let request =
            request.header(header::HOST, "machine").body(body).map_err(io::Error::other)?;
        // Whoever is root in the instance may serve this port in place of the guest.
        let (stream, before_answer) = Bounded::new(stream, BEFORE_ANSWER_BYTES_MAX);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends with the exchange, which reports any error.
        tokio::spawn(connection);
        before_answer.begin();
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        before_answer.end();
        Ok(answer)
    }

    pub(crate) fn as_machine(
        &self,
        id: &InstanceName,
        method: Method,
        path: &str,
    ) -> request::Builder {
        Request::builder().method(method).uri(path).header(SECRET_HEADER, self.0.key.secret(id))
    }

    /// Hands this server's guest program over to an instance that has just asked for it. The
    /// instance accepts it only from a caller who shows its secret.
    pub(crate) async fn hand_over_program(&self, instance: &str) -> io::Result<()> {
        let id = InstanceName::new(instance)
            .map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
        let (pieces, body) = Channel::new(PIECES);
        let request = self.as_machine(&id, Method::PUT, PROGRAM_PATH);
        let (_, answer) =
            tokio::join!(send(&self.0.guest, pieces), self.ask_guest(&id, request, body));
        match answer?.status() {
            StatusCode::NO_CONTENT => Ok(()),
            status => Err(io::Error::other(format!("the guest answers {status}"))),
        }
    }

    /// Waits for the program that the image starts by itself, and returns why it failed, if it does
    /// so soon after launch. If the guest cannot be asked, the program counts as not failed.
    pub(crate) async fn start_failure(&self, id: &InstanceName) -> Option<String> {
        if !self.0.starting.lock().remove(id) {
            return None;
        }
        let request = self.as_machine(id, Method::GET, START_PATH);
        let asked = timeout(START_WATCH + ANSWER_GRACE, async {
            let answer = self.ask_guest(id, request, Empty::<Bytes>::new()).await.ok()?;
            let failed = answer.status() == StatusCode::OK;
            let text =
                Limited::new(answer.into_body(), START_FAILURE_BYTES_MAX).collect().await.ok()?;
            failed.then(|| String::from_utf8_lossy(&text.to_bytes()).into_owned())
        });
        asked.await.ok().flatten()
    }
}

/// Sends the program. Stops early when the receiver is gone; the answer to the request tells why.
async fn send(program: &Program, mut pieces: Pieces) {
    let mut position = 0;
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let length = match program.read_at(&mut piece, position) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) => return pieces.abort(error),
        };
        piece.truncate(length);
        position += length as u64;
        if pieces.send_data(piece.into()).await.is_err() {
            return;
        }
    }
}
