//! Drives as S3 clients see them, below `/s3/`. It is not an operation of the table, because its
//! addresses, errors and credentials are those of the S3 protocol, which the crate `s3` implements.
//!
//! The key id is that of an API key of a service account, and the key itself signs requests.
//! Permissions of drives that depend on labels are ignored here.

use crate::app::App;
use crate::http::limits::Limits;
use crate::http::lists::Lists;
use crate::http::long_request::LongRequest;
use admission::Connection;
use auth::api_keys::{self, NoSigningKey};
use auth::{Denied, Identity, Member, Ticket};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use control::drive_buckets::{self, BASE, NoBucket};
use control::{Context, Control};
use futures_util::future::BoxFuture;
use http::Method;
use s3::{Bucket, BucketEntry, Owner, Refused, Secret, Service, Settings, Signed};
use std::io;
use std::sync::Arc;
use store::Tx;

/// The addresses that are served here.
#[rustfmt::skip]
pub(crate) const ADDRESSES: [(Method, &str); 9] = [
    (Method::GET, "/s3/"),
    (Method::GET, "/s3/{bucket}"),
    (Method::HEAD, "/s3/{bucket}"),
    (Method::POST, "/s3/{bucket}"),
    (Method::GET, "/s3/{bucket}/{key}"),
    (Method::HEAD, "/s3/{bucket}/{key}"),
    (Method::PUT, "/s3/{bucket}/{key}"),
    (Method::POST, "/s3/{bucket}/{key}"),
    (Method::DELETE, "/s3/{bucket}/{key}"),
];

pub(crate) fn service(control: &Control, limits: &Arc<Limits>, lists: &Lists) -> Service {
    let access =
        Access { control: control.clone(), limits: Arc::clone(limits), lists: lists.clone() };
    let own = control.settings.s3;
    let settings = Settings {
        base: BASE.to_owned(),
        requests_max: own.requests_max,
        requests_per_owner_max: own.requests_workspace_max,
        heavy_max: own.heavy_max,
        heavy_per_owner_max: own.heavy_workspace_max,
        put_bytes_max: own.put_bytes_max,
        uploads_max: own.uploads_max,
        upload_life: own.upload_life,
        idle_max: own.stall,
        ..Settings::default()
    };
    Service::new(Arc::new(access), settings, control.world.clone())
}

/// Answers everything below `/s3`.
pub(crate) async fn answer(State(app): State<App>, mut request: Request) -> Response {
    let long = request.extensions().get::<LongRequest>().cloned();
    let connection = request.extensions().get::<Connection>().cloned();
    request.extensions_mut().insert(Signed(Arc::new(move |key_id| {
        // Bodies are as long as objects; the limit is how long they may pause.
        if let Some(long) = &long {
            long.announce();
        }
        if let Some(connection) = &connection {
            connection.signed_in(key_id);
        }
    })));
    app.s3.handle(request).await.map(Body::new)
}

/// Looks up keys for the protocol.
struct Access {
    control: Control,
    limits: Arc<Limits>,
    lists: Lists,
}

/// The holder of a key of a service account.
struct Caller {
    control: Control,
    limits: Arc<Limits>,
    lists: Lists,
    id: String,
    identity: Arc<Identity>,
    secret: Secret,
}

impl Caller {
    /// Returns the service account as a member of the workspace that its key belongs to.
    fn member(&self) -> Result<Member, Refused> {
        self.control.auth.enter(&self.identity, None).map_err(refused)
    }
}

fn no_key(error: NoSigningKey) -> Refused {
    match error {
        NoSigningKey::Unknown => Refused::UnknownKey,
        NoSigningKey::NotServiceAccount | NoSigningKey::ForModels | NoSigningKey::NotKept => {
            Refused::UnusableKey(error.to_string())
        }
        NoSigningKey::Store(error) => failed(error.into()),
    }
}

fn refused(denied: Denied) -> Refused {
    match denied {
        Denied::Store(error) => failed(error.into()),
        denied => Refused::Denied(denied.to_string()),
    }
}

fn failed(error: control::Error) -> Refused {
    match error {
        control::Error::Store(error) if error.is_away() => {
            Refused::Unavailable(error.for_callers().to_owned())
        }
        other => Refused::Broken(io::Error::other(other)),
    }
}

fn too_fast() -> Refused {
    Refused::Unavailable("Too many requests came within a second; ask again.".to_owned())
}

impl s3::Access for Access {
    fn find_key<'a>(
        &'a self,
        key_id: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn s3::Caller>, Refused>> {
        Box::pin(async move {
            let (id, store) = (key_id.to_owned(), &self.control.store);
            let found = store.read(move |tx: &mut Tx<'_>| api_keys::signing_key(tx, &id)).await;
            let key = found.map_err(no_key)?;
            let caller = Caller {
                control: self.control.clone(),
                limits: Arc::clone(&self.limits),
                lists: self.lists.clone(),
                id: key_id.to_owned(),
                identity: key.identity,
                secret: Secret::new(key.secret.as_str()),
            };
            Ok(Arc::new(caller) as Arc<dyn s3::Caller>)
        })
    }
}

impl s3::Caller for Caller {
    fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Counts the request only after its signature was verified: key ids are not secret, and
    /// somebody who only knows an id must not use up the rate of the key or of its workspace.
    fn enter(&self) -> Result<String, Refused> {
        self.limits.take_key(self.identity.holder()).map_err(|_| too_fast())?;
        let workspace = self.member()?.workspace.to_string();
        self.limits.take_workspace(&workspace).map_err(|_| too_fast())?;
        Ok(workspace)
    }

    fn outlived(&self) -> BoxFuture<'static, ()> {
        // Here the key itself identifies the caller, as everywhere else.
        let (auth, key, id) = (self.control.auth.clone(), self.secret.clone(), self.id.clone());
        Box::pin(async move {
            let Ok(identity) = auth.identify(key.as_str()).await else { return };
            let Ok(member) = auth.enter(&identity, None) else { return };
            let ticket = Ticket::new(key.as_str(), &member, &[]);
            let denied = auth.outlived(&ticket).await;
            tracing::debug!(key = id, %denied, "an S3 request outlived its key");
        })
    }

    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Bucket, Refused>> {
        Box::pin(async move {
            let member = self.member()?;
            let drive = drive_buckets::open(&self.control, &member, bucket).await;
            let drive = drive.map_err(|error| match error {
                NoBucket::Missing => Refused::NoBucket,
                NoBucket::Elsewhere(_) => Refused::Elsewhere(error.to_string()),
                NoBucket::NotHere => Refused::Unavailable(error.to_string()),
                NoBucket::Files(error) => Refused::Broken(error),
                NoBucket::Rules(error) => failed(error),
            })?;
            // Mounts in sandboxes shift owners; these ids are root there.
            let owner = Owner { user: 0, group: 0 };
            let (id, files) = (drive.id.to_string(), Arc::new(drive.root));
            Ok(Bucket { id, files, owner, may_write: true })
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<BucketEntry>, Refused>> {
        Box::pin(async move {
            let member = self.member()?;
            let workspace = member.workspace.to_string();
            let context = Context { control: self.control.clone(), member };
            let work = move |tx: &mut Tx<'_>| drive_buckets::list(&context, tx);
            let listed = self.lists.read(&workspace, work).await.map_err(failed)?;
            let entry = |(name, created_at)| BucketEntry { name, created_at };
            Ok(listed.into_iter().map(entry).collect())
        })
    }
}
