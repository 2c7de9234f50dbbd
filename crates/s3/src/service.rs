//! Handles a request from its first byte to its answer.

use crate::access::{Access, Bucket, BucketEntry, Caller, Refused};
use crate::body::{self, Body};
use crate::error::{Code, Error};
use crate::folder::{Folder, Locks, Turn};
use crate::ops::call::Call;
use crate::ops::{self, answers};
use crate::payload::{Incoming, Payload};
use crate::route::{BucketAct, ObjectAct, Place, Query};
use crate::settings::Settings;
use crate::signature::{Claim, read_query};
use crate::tidy::Tidy;
use crate::xml::Xml;
use admission::{Limits, Pool, Turns};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use types::World;

/// Length of the id that each answer gets.
const REQUEST_ID: usize = 16;

/// Serves buckets over the S3 protocol. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    access: Arc<dyn Access>,
    settings: Arc<Settings>,
    world: World,
    requests: Pool<String>,
    heavy: Arc<Turns>,
    locks: Arc<Locks>,
    tidy: Tidy,
}

/// An extension of a request. It is called with the key id once the signature is verified.
#[derive(Clone)]
pub struct Signed(pub Arc<dyn Fn(&str) + Send + Sync>);

impl Service {
    pub fn new(access: Arc<dyn Access>, settings: Settings, world: World) -> Self {
        let limits = Limits {
            total: settings.requests_max as u64,
            share: settings.requests_per_owner_max as u64,
        };
        let requests = Pool::new("open S3 requests", limits);
        let heavy = Arc::new(Turns::new(settings.heavy_max, settings.heavy_per_owner_max));
        let (settings, locks, tidy) = (Arc::new(settings), Arc::default(), Tidy::default());
        Self(Arc::new(Inner { access, settings, world, requests, heavy, locks, tidy }))
    }

    /// Answers a request. Failures are answers too.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let id = self.0.world.random_text(REQUEST_ID).to_ascii_uppercase();
        let (parts, incoming) = request.into_parts();
        let incoming = incoming.map_err(io::Error::other).boxed_unsync();
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let answer = Box::pin(self.serve(parts, incoming)).await;
        let mut response = answer.unwrap_or_else(|error| {
            if let Some(cause) = &error.cause {
                tracing::error!(%method, error = cause as &dyn StdError, "an S3 request failed");
            }
            refusal(&error, &method, &path, &id)
        });
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert("x-amz-request-id", id);
        }
        // If someone opens an object in a browser, it must not act as a page of this server.
        headers.insert("content-security-policy", HeaderValue::from_static("sandbox"));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    }

    async fn serve(&self, parts: Parts, incoming: Incoming) -> Result<Response<Body>, Error> {
        let Inner { access, settings, world, .. } = &*self.0;
        let place = Place::of(&parts, &settings.base)?;
        let bad_query = || Error::new(Code::InvalidUri, "The query cannot be read.");
        let query = read_query(&parts).ok_or_else(bad_query)?;
        let claim = Claim::read(&parts, query.clone(), world.now())?;
        // Up to here a request waits for nothing but the key lookup, which clients cannot make
        // slower.
        let caller = access.find_key(&claim.key_id).await?;
        let chain = claim.check(&parts, caller.secret())?;
        let owner = caller.enter()?;
        let turn: Turn = Arc::new(self.0.requests.take(&owner, 1).map_err(slow_down)?);
        if let Some(Signed(tell)) = parts.extensions.get() {
            tell(&claim.key_id);
        }
        if parts.headers.contains_key("service-worker") {
            let message = "Objects are not served as workers of a page.";
            return Err(Error::new(Code::AccessDenied, message));
        }
        let payload = (incoming, caller.outlived());
        let payload = Payload::new(&parts, payload, (&claim, chain), settings)?;
        let query = Query(query);
        let response = match place.bucket() {
            None => self.list_buckets(&parts, &claim.key_id, &*caller).await?,
            Some(name) => {
                let bucket = caller.open(name).await?;
                let by = (claim.key_id, owner, Arc::clone(&caller));
                let call = self.call(parts, query, (name, bucket), by, &turn).await;
                Box::pin(act(call, place, payload)).await?
            }
        };
        let stall = settings.idle_max;
        Ok(response.map(|body| body::guarded(body, turn, stall, || caller.outlived())))
    }

    async fn call(
        &self,
        parts: Parts,
        query: Query,
        (name, bucket): (&str, Bucket),
        (key_id, owner, caller): (String, String, Arc<dyn Caller>),
        turn: &Turn,
    ) -> Call {
        let Inner { settings, world, heavy, locks, tidy, .. } = &*self.0;
        let may_write = bucket.may_write;
        let id = bucket.id.clone();
        let folder = Folder::new(bucket, locks, world.clone(), Arc::clone(turn));
        if may_write {
            tidy.look(&id, &folder, settings, world).await;
        }
        Call {
            parts,
            bucket: name.to_owned(),
            bucket_id: id,
            query,
            folder,
            may_write,
            key_id,
            caller,
            settings: Arc::clone(settings),
            locks: Arc::clone(locks),
            turn: Arc::clone(turn),
            owner,
            heavy: Arc::clone(heavy),
            world: world.clone(),
        }
    }

    async fn list_buckets(
        &self,
        parts: &Parts,
        key_id: &str,
        caller: &dyn Caller,
    ) -> Result<Response<Body>, Error> {
        if parts.method != Method::GET {
            return Err(Error::new(Code::MethodNotAllowed, "This method is not allowed here."));
        }
        let mut xml = Xml::begin("ListAllMyBucketsResult", true);
        xml.open("Owner");
        xml.leaf("ID", key_id);
        xml.close();
        xml.open("Buckets");
        for BucketEntry { name, created_at } in caller.list().await? {
            xml.open("Bucket");
            xml.leaf("Name", &name);
            xml.leaf("CreationDate", &created_at.to_string());
            xml.close();
        }
        Ok(answers::xml(xml))
    }
}

async fn act(call: Call, place: Place, payload: Payload) -> Result<Response<Body>, Error> {
    match place {
        Place::Service => Err(Error::new(Code::MethodNotAllowed, "There is no bucket.")),
        Place::Bucket(name) => {
            let act = BucketAct::of(&call.parts, &call.query)?;
            if act.writes() && !call.may_write {
                return Err(Error::may_not_write());
            }
            ops::bucket(call, act, &name, payload).await
        }
        Place::Object(name, key) => {
            let act = ObjectAct::of(&call.parts, &call.query)?;
            if act.writes() && !call.may_write {
                return Err(Error::may_not_write());
            }
            ops::object(call, act, (&name, &key), payload).await
        }
    }
}

fn slow_down(refused: admission::Refused) -> Error {
    let whose = match refused {
        admission::Refused::Share { .. } => "the owner of this key may have",
        admission::Refused::Total { .. } => "this server can have",
    };
    let message = format!("As many requests go on as {whose} at a time; ask again.");
    Error::new(Code::SlowDown, message)
}

fn refusal(error: &Error, method: &Method, path: &str, id: &str) -> Response<Body> {
    let text = if method == Method::HEAD { String::new() } else { error.to_xml(path, id) };
    let mut response = Response::new(body::of(text));
    *response.status_mut() = error.code.status();
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/xml"));
    if error.code.status() == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert("retry-after", HeaderValue::from_static("1"));
    }
    response
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::UnknownKey => {
                Self::new(Code::InvalidKeyId, "The access key id does not exist here.")
            }
            Refused::UnusableKey(why) | Refused::Denied(why) => Self::new(Code::AccessDenied, why),
            Refused::NoBucket => {
                Self::new(Code::NoSuchBucket, "The specified bucket does not exist.")
            }
            Refused::Elsewhere(why) => Self::new(Code::InvalidRequest, why),
            Refused::Unavailable(why) => Self::new(Code::Unavailable, why),
            Refused::Broken(cause) => cause.into(),
        }
    }
}
