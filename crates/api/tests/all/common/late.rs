//! Requests whose body comes long after the head.

use super::{Answer, Cloud};
use axum::body::Body;
use futures_util::stream;
use http::{Method, Request};
use std::io;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

impl Cloud {
    /// Sends a request, and its body once `meanwhile` is over, which begins when the server waits
    /// for the body.
    pub async fn late(
        &self,
        (method, path): (Method, &str),
        headers: &[(&str, &str)],
        body: &str,
        meanwhile: impl Future,
    ) -> Answer {
        let (waits, (come, comes)) = (Arc::new(Notify::new()), oneshot::channel());
        let (waited_for, body) = (waits.clone(), body.to_owned());
        let body = stream::once(async move {
            waited_for.notify_one();
            comes.await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(body)
        });
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from_stream(body)).expect("a request");
        let change = async {
            waits.notified().await;
            meanwhile.await;
            let _ = come.send(());
        };
        let mut sent = std::pin::pin!(self.send(request));
        tokio::select! {
            // It was refused without the body.
            answer = &mut sent => answer,
            () = change => sent.await,
        }
    }
}
