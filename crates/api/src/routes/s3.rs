//! The S3 view of drives, below `/s3/`. It is no operation of the table: its addresses, errors and
//! credentials are those of that protocol, which the crate `s3` speaks.
//!
//! A key id is that of an API key of a service account, and the key signs. What the permissions of
//! drives say of labels does not count here.

use crate::app::App;
use crate::http::limits::Limits;
use crate::http::long_request::LongRequest;
use admission::Connection;
use auth::api_keys::{self, NoSigningKey};
use auth::{Denied, Member, Ticket};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use control::Control;
use control::drive_buckets::{self, BASE, NoBucket};
use http::Method;
use s3::{Bucket, BucketEntry, Owner, Refused, Secret, Service, Settings, Signed, Wait};
use std::io;
use std::sync::Arc;
use store::Tx;

/// What is answered here.
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

pub(crate) fn service(control: &Control, limits: &Arc<Limits>) -> Service {
    let access = Access { control: control.clone(), limits: Arc::clone(limits) };
    let own = control.settings.s3;
    let settings = Settings {
        base: BASE.to_owned(),
        requests_max: own.requests_max,
        requests_per_key_max: own.requests_key_max,
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
        // Bodies are as long as objects are, and are bound by how long they may stand still.
        if let Some(long) = &long {
            long.announce();
        }
        if let Some(connection) = &connection {
            connection.signed_in(key_id);
        }
    })));
    app.s3.handle(request).await.map(Body::new)
}

/// What the protocol asks of keys and drives.
struct Access {
    control: Control,
    limits: Arc<Limits>,
}

impl Access {
    async fn key(&self, id: &str) -> Result<api_keys::SigningKey, Refused> {
        let id = id.to_owned();
        let found = self.control.store.read(move |tx: &mut Tx<'_>| api_keys::signing_key(tx, &id));
        found.await.map_err(|error| match error {
            NoSigningKey::Unknown => Refused::UnknownKey,
            NoSigningKey::NotServiceAccount | NoSigningKey::NotKept => {
                Refused::UnusableKey(error.to_string())
            }
            NoSigningKey::Store(error) => Refused::Broken(io::Error::other(error)),
        })
    }

    /// The workspace of the service account that a key belongs to. Counted here, where the signature
    /// was right: ids of keys are no secret, and whoever knows one must not use up its rate.
    async fn member(&self, key_id: &str) -> Result<Member, Refused> {
        let key = self.key(key_id).await?;
        self.limits.take_key(key.identity.holder()).map_err(|_| too_fast())?;
        let member = self.control.auth.enter(&key.identity, None).map_err(refused)?;
        let taken = self.limits.take_workspace(member.workspace.as_str());
        taken.map_err(|_| too_fast())?;
        Ok(member)
    }
}

fn refused(denied: Denied) -> Refused {
    match denied {
        Denied::Store(error) => Refused::Broken(io::Error::other(error)),
        denied => Refused::Denied(denied.to_string()),
    }
}

fn too_fast() -> Refused {
    Refused::Unavailable("Too many requests came within a second; ask again.".to_owned())
}

impl s3::Access for Access {
    fn find_key<'a>(&'a self, key_id: &'a str) -> Wait<'a, Result<Secret, Refused>> {
        Box::pin(async move { Ok(Secret::new(self.key(key_id).await?.secret.as_str())) })
    }

    fn outlived(&self, key_id: &str, secret: &Secret) -> Wait<'static, ()> {
        // Whoever has the key itself is known by it, as everywhere.
        let (auth, key, id) = (self.control.auth.clone(), secret.clone(), key_id.to_owned());
        Box::pin(async move {
            let Ok(identity) = auth.identify(key.as_str()).await else { return };
            let Ok(member) = auth.enter(&identity, None) else { return };
            let ticket = Ticket::new(key.as_str(), &member, &[]);
            let denied = auth.outlived(&ticket).await;
            tracing::debug!(key = id, %denied, "an S3 request outlived its key");
        })
    }

    fn open<'a>(&'a self, key_id: &'a str, bucket: &'a str) -> Wait<'a, Result<Bucket, Refused>> {
        Box::pin(async move {
            let member = self.member(key_id).await?;
            let drive = drive_buckets::open(&self.control, &member, bucket).await;
            let drive = drive.map_err(|error| match error {
                NoBucket::Missing => Refused::NoBucket,
                NoBucket::Elsewhere => Refused::Unavailable(error.to_string()),
                NoBucket::Files(error) => Refused::Broken(error),
                NoBucket::Rules(error) => Refused::Broken(io::Error::other(error)),
            })?;
            let files = Arc::new(drive.root);
            let hidden = Arc::new(s3::hidden_folder(&files).map_err(Refused::Broken)?);
            // Mounts in sandboxes shift owners: there, these are the ids of root.
            let owner = Owner { user: 0, group: 0 };
            Ok(Bucket { id: drive.id.to_string(), files, hidden, owner, may_write: true })
        })
    }

    fn list<'a>(&'a self, key_id: &'a str) -> Wait<'a, Result<Vec<BucketEntry>, Refused>> {
        Box::pin(async move {
            let member = self.member(key_id).await?;
            let listed = drive_buckets::list(&self.control, &member).await;
            let listed = listed.map_err(|error| Refused::Broken(io::Error::other(error)))?;
            let entry = |(name, created_at)| BucketEntry { name, created_at };
            Ok(listed.into_iter().map(entry).collect())
        })
    }
}
