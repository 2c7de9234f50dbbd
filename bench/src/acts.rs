//! What the measurement of the management API does to its objects.

use crate::http1::Http1;
use crate::load::Caller;
use futures_util::future::try_join_all;
use std::rc::Rc;
use std::time::Instant;

/// What a caller does next, to one of the objects that were created before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// Creates an object that does not exist yet.
    Make {
        object: usize,
    },
    /// Replaces an object by a value that it never had before.
    Put {
        object: usize,
        value: u64,
    },
    Get {
        object: usize,
    },
    /// A list request, by its index among those that are measured.
    List {
        query: usize,
    },
}

/// What a measurement repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    Put,
    Get,
    List { query: usize },
}

impl Mix {
    /// Returns the next act, on a random one of `objects` objects.
    pub(crate) fn next(self, objects: usize) -> Act {
        let object = fastrand::usize(..objects);
        match self {
            Self::Put => Act::Put { object, value: fastrand::u64(..) },
            Self::Get => Act::Get { object },
            Self::List { query } => Act::List { query },
        }
    }
}

/// Returns the name of an object.
pub(crate) fn name(object: usize) -> String {
    format!("bench-{object:06}")
}

/// Returns what is stored for an object: about what a small deployment sends.
pub(crate) fn body(object: usize, value: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{}","displayName":"Bench {object}","labels":{{"team":"measure","run":"{value:020}"}}}},"spec":{{"region":"local","runtime":{{"image":"blaxel/base-image:latest","memory":2048,"ports":[{{"name":"web","target":3000,"protocol":"HTTP"}}],"envs":[{{"name":"MODE","value":"production"}},{{"name":"LEVEL","value":"info"}}]}},"lifecycle":{{"expirationPolicies":[{{"type":"ttl-idle","value":"30m","action":"delete"}}]}}}}}}"#,
        name(object)
    )
}

/// A caller of Holm's management API.
pub(crate) struct Manager {
    pub(crate) http: Http1,
    /// The query strings of the lists that are measured.
    pub(crate) lists: Rc<[String]>,
}

impl Caller for Manager {
    type Act = Act;

    async fn call(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            Act::Make { object } => {
                self.http.ask("POST", "/v0/sandboxes", &body(object, 0)).await.map(drop)
            }
            Act::Put { object, value } => self
                .http
                .ask("PUT", &format!("/v0/sandboxes/{}", name(object)), &body(object, value))
                .await
                .map(drop),
            Act::Get { object } => {
                self.http.ask("GET", &format!("/v0/sandboxes/{}", name(object)), "").await.map(drop)
            }
            Act::List { query } => self
                .http
                .ask("GET", &format!("/v0/sandboxes?{}", self.lists[query]), "")
                .await
                .map(drop),
        }
    }
}

/// Creates the objects, spread over all callers.
pub(crate) async fn fill<C: Caller<Act = Act>>(
    callers: &mut [C],
    objects: usize,
) -> anyhow::Result<f64> {
    let (start, count) = (Instant::now(), callers.len());
    let each = callers.iter_mut().enumerate().map(|(first, caller)| async move {
        for object in (first..objects).step_by(count) {
            caller.call(Act::Make { object }).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(each).await?;
    Ok(objects as f64 / start.elapsed().as_secs_f64())
}
