//! Changes of an object that depend on what it is now.

use super::{ANSWER_TIMEOUT, Client};
use crate::error::Error;
use http::header::{ETAG, IF_MATCH};
use reqwest::{Method, StatusCode};
use serde_json::Value;

/// How often a change is tried while others write the same object.
const TRIES: u32 = 5;

impl Client {
    /// Reads an object, changes it and writes it back. If somebody else wrote it in between, it is
    /// read and changed again, so that neither change is lost.
    pub(crate) async fn change(
        &mut self,
        path: &str,
        change: impl Fn(&mut Value) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        let mut tries = 1;
        loop {
            let (headers, mut object) = self.exchange(Method::GET, path, &[], None).await?;
            change(&mut object)?;
            let request = self.request(Method::PUT, path, &[]).await?;
            let request = request.timeout(ANSWER_TIMEOUT).json(&object);
            let request = match headers.get(ETAG) {
                Some(version) => request.header(IF_MATCH, version),
                None => request,
            };
            match self.answer(request).await {
                Err(Error::Answer { status: StatusCode::PRECONDITION_FAILED, .. })
                    if tries < TRIES =>
                {
                    tries += 1;
                }
                answer => return Ok(answer?.1),
            }
        }
    }
}
