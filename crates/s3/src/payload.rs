//! Unwraps the body of a request and checks it against what was announced.

mod chunks;

use crate::checksum::{Algorithm, Checksum, Running, content_md5};
use crate::error::{Code, Error};
use crate::settings::Settings;
use crate::signature::{Chain, Claim, Payload as Kind};
use bytes::Bytes;
use chunks::{Chunks, Event};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::request::Parts;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use ring::digest;
use std::io;
use std::time::Duration;
use tokio::time::Instant;
use types::hex;

/// This much of a body must arrive within the time allowed for stalls: sending a byte now and then
/// does not count as progress.
const WINDOW: usize = 1 << 20;

pub(crate) type Incoming = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is being read.
pub(crate) struct Payload {
    body: Incoming,
    idle_max: Duration,
    /// How much time is left for the rest of the current window, and how much of it has arrived.
    patience: Duration,
    came: usize,
    /// Completes when the caller may no longer go on.
    outlived: BoxFuture<'static, ()>,
    /// The length without the wrapping, if it was announced.
    pub(crate) length: Option<u64>,
    read: u64,
    digest: Option<(digest::Context, String)>,
    chunks: Option<Chunks>,
    checksum: Option<(Running, Option<String>)>,
    pub(crate) md5: Option<[u8; 16]>,
}

impl Payload {
    pub(crate) fn new(
        parts: &Parts,
        (body, outlived): (Incoming, BoxFuture<'static, ()>),
        (claim, chain): (&Claim, Chain),
        settings: &Settings,
    ) -> Result<Self, Error> {
        let headers = &parts.headers;
        let announced = Checksum::read(headers)?;
        let mut payload = Self {
            body,
            idle_max: settings.idle_max,
            patience: settings.idle_max,
            came: 0,
            outlived,
            length: number(headers, "content-length")?,
            read: 0,
            digest: None,
            chunks: None,
            checksum: announced.map(|sum| (Running::new(sum.algorithm), Some(sum.value))),
            md5: content_md5(headers)?,
        };
        match claim.payload()? {
            Kind::Unsigned => {}
            Kind::Digest(announced) => {
                payload.digest = Some((digest::Context::new(&digest::SHA256), announced));
            }
            Kind::Chunks { signed, trailer } => {
                let length = number(headers, "x-amz-decoded-content-length")?;
                payload.length = Some(length.ok_or_else(no_length)?);
                let field = if trailer { trailer_field(headers)? } else { None };
                if let Some(algorithm) = field {
                    payload.checksum.get_or_insert((Running::new(algorithm), None));
                }
                payload.chunks = Some(Chunks::new(signed.then_some(chain), trailer));
            }
        }
        Ok(payload)
    }

    /// Returns the length, which a request that stores bytes must announce.
    pub(crate) fn needed_length(&self) -> Result<u64, Error> {
        self.length.ok_or_else(no_length)
    }

    /// Returns the next bytes, or `None` at the end. A body that does not match what was signed and
    /// announced is an error, at the end at the latest.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(chunks) = &mut self.chunks {
                match chunks.next()? {
                    Event::Data(bytes) => {
                        self.pass(&bytes)?;
                        return Ok(Some(bytes));
                    }
                    Event::Wants => {}
                }
            }
            match self.frame().await? {
                Some(bytes) => match &mut self.chunks {
                    Some(chunks) => chunks.push(bytes),
                    None => {
                        self.pass(&bytes)?;
                        return Ok(Some(bytes));
                    }
                },
                None => return self.finish().map(|()| None),
            }
        }
    }

    async fn frame(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let asked = Instant::now();
            let frame = tokio::time::timeout(self.patience, self.body.frame());
            let frame = tokio::select! {
                () = &mut self.outlived => {
                    return Err(Error::new(Code::AccessDenied, "The key is no longer valid."));
                }
                frame = frame => frame,
            };
            let slow = |_| Error::new(Code::Timeout, "The body took too long to come.");
            let frame = frame.map_err(slow)?;
            // The time that the caller takes to write it does not count against the sender.
            self.patience = self.patience.saturating_sub(asked.elapsed());
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(Error::incomplete()),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => {
                        self.came += bytes.len();
                        if self.came >= WINDOW {
                            (self.came, self.patience) = (0, self.idle_max);
                        }
                        return Ok(Some(bytes));
                    }
                    // HTTP trailers are not used here.
                    Err(_) => {}
                },
            }
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.read += bytes.len() as u64;
        if self.length.is_some_and(|length| self.read > length) {
            return Err(Error::new(Code::IncompleteBody, "The body is longer than announced."));
        }
        if let Some((context, _)) = &mut self.digest {
            context.update(bytes);
        }
        if let Some((running, _)) = &mut self.checksum {
            running.update(bytes);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.length.is_some_and(|length| self.read != length) {
            return Err(Error::incomplete());
        }
        if let Some((context, announced)) = self.digest.take()
            && hex::encode(context.finish().as_ref()) != announced
        {
            let message = "The body is not the one that was signed.";
            return Err(Error::new(Code::BodyHashMismatch, message));
        }
        if let Some(chunks) = &self.chunks {
            let trailer = chunks.finish()?;
            if let Some((running, value @ None)) = &mut self.checksum {
                *value = trailer
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(running.algorithm.field()))
                    .map(|(_, value)| value.clone());
            }
        }
        Ok(())
    }

    /// Returns the verified checksum that came with the body. To be called after the end of the
    /// body.
    pub(crate) fn checksum(&mut self) -> Result<Option<Checksum>, Error> {
        let Some((running, announced)) = self.checksum.take() else { return Ok(None) };
        let missing = || Error::new(Code::IncompleteBody, "The announced trailer did not come.");
        running.check(&announced.ok_or_else(missing)?).map(Some)
    }

    /// Takes a checksum out that came in the headers and is not one of the body.
    pub(crate) fn take_announced(&mut self) -> Option<Checksum> {
        let (running, value) = self.checksum.take_if(|(_, value)| value.is_some())?;
        Some(Checksum { algorithm: running.algorithm, value: value? })
    }

    /// Reads the whole body into memory.
    pub(crate) async fn collect(mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > bytes_max {
                return Err(Error::new(Code::EntityTooLarge, "The body is too large."));
            }
            all.extend_from_slice(&bytes);
        }
        self.checksum()?;
        if let Some(announced) = self.md5
            && md5_of(&all) != announced
        {
            return Err(bad_md5());
        }
        Ok(all)
    }
}

pub(crate) fn md5_of(bytes: &[u8]) -> [u8; 16] {
    use md5::Digest;
    md5::Md5::digest(bytes).into()
}

pub(crate) fn bad_md5() -> Error {
    Error::new(Code::BadDigest, "The body does not have the Content-MD5 that came.")
}

fn no_length() -> Error {
    Error::new(Code::MissingLength, "The length of the body has to be said.")
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| Error::argument(format!("{name} is not a number.")))
}

/// Returns the algorithm of the checksum that follows the body.
fn trailer_field(headers: &HeaderMap) -> Result<Option<Algorithm>, Error> {
    let Some(value) = headers.get("x-amz-trailer") else { return Ok(None) };
    let unknown = || Error::argument("x-amz-trailer names a field that is not known here.");
    let name = value.to_str().map_err(|_| unknown())?;
    Algorithm::of_field(name.trim()).map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    const STALL: Duration = Duration::from_secs(60);

    /// Returns a body that brings this many bytes each time after this many seconds.
    fn slow(bytes: usize, seconds: u64, times: usize) -> Payload {
        let pieces = stream::unfold(0, move |sent| async move {
            if sent == times {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Some((Ok(Frame::data(Bytes::from(vec![0; bytes]))), sent + 1))
        });
        Payload {
            body: StreamBody::new(pieces).boxed_unsync(),
            idle_max: STALL,
            patience: STALL,
            came: 0,
            outlived: Box::pin(std::future::pending()),
            length: None,
            read: 0,
            digest: None,
            chunks: None,
            checksum: None,
            md5: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_not_going_on() {
        let (mut payload, began) = (slow(1, 20, usize::MAX), Instant::now());
        let error = loop {
            match payload.next().await {
                Ok(piece) => assert!(piece.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code, Code::Timeout);
        assert!(began.elapsed() <= STALL + Duration::from_secs(1), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_and_steady_goes_on() {
        let mut payload = slow(WINDOW / 2, 25, 20);
        let mut came = 0;
        while let Some(piece) = payload.next().await.unwrap() {
            came += piece.len();
            // What the caller does with it takes its own time.
            tokio::time::sleep(STALL).await;
        }
        assert_eq!(came, WINDOW * 10);
    }
}
