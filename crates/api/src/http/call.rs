//! A request as handlers see it: caller, path and content, all checked.

use crate::app::App;
use crate::http::bodies::{self, Gathered};
use crate::http::error::Error;
use crate::http::headers;
use crate::http::idempotency;
use crate::http::json_body::{json, typed};
use crate::http::long_request::LongRequest;
use crate::http::malformed::Malformed;
use crate::http::operation::{Line, Needs, Operation};
use crate::http::query::{NoQuery, parse_query};
use admission::{Connection, Room};
use auth::{Identity, Member};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use bytes::Bytes;
use control::Context;
use control::idempotency::RequestKey;
use http::request::Parts;
use http::{Extensions, HeaderMap};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use types::schema::Checker;
use types::{ApiVersion, Kind, Naming, World};

/// One checked request. The store can only be asked through it, because `who` holds the workspace.
pub(crate) struct Call<W, Q = NoQuery, B = NoBody> {
    pub app: App,
    pub who: W,
    pub path: Path,
    pub query: Q,
    pub body: B,
    pub version: ApiVersion,
    /// What the operation needs. It has been checked, unless the workspace depends on the path.
    pub needs: Needs,
    /// The caller's key for this attempt, with which it can be repeated safely.
    pub(crate) key: Option<RequestKey>,
    /// The version that the caller has read and wants to change, from `If-Match`.
    pub(crate) if_match: Option<i64>,
    pub(crate) headers: HeaderMap,
    /// For handlers that legitimately take long.
    pub(crate) long: LongRequest,
    /// The shared memory that the body takes, until the call is answered.
    pub(crate) room: Arc<Room<String>>,
}

/// The values in the path, in order.
pub(crate) struct Path(Vec<String>);

impl Path {
    /// Returns the last value, which names the object itself.
    pub(crate) fn name(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Returns the value at `index`, counted from the left.
    pub(crate) fn at(&self, index: usize) -> &str {
        self.0.get(index).map_or("", String::as_str)
    }

    /// Returns all values: for a collection, the objects that contain it.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.clone()
    }

    /// Returns all values but the last: for an object, the objects that contain it.
    pub(crate) fn parents(&self) -> Vec<String> {
        self.0.split_last().map(|(_, parents)| parents.to_vec()).unwrap_or_default()
    }
}

/// Who may call. It is an argument type of the handler, so that no handler runs without the check.
pub(crate) trait Who: Sized + Send + 'static {
    fn admit(
        app: &App,
        needs: Needs,
        request: &Credentials<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Decides again on a caller who was admitted, without counting the request again.
    fn readmit(
        self,
        app: &App,
        needs: Needs,
        request: &Credentials<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Identifies the callers who share what there is for their requests: memory for bodies, and
    /// room for answers kept under idempotency keys.
    fn realm(&self) -> String;
    /// Returns the identity behind the credentials, if there is one.
    fn identity(&self) -> Option<&Identity>;
}

/// The parts of a request that identify its caller.
pub(crate) struct Credentials<'r> {
    pub token: Option<&'r str>,
    pub workspace: Option<&'r str>,
}

/// Any caller, without credentials.
pub(crate) struct Anyone;

impl Who for Anyone {
    async fn admit(_: &App, _: Needs, _: &Credentials<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    async fn readmit(self, _: &App, _: Needs, _: &Credentials<'_>) -> Result<Self, Error> {
        Ok(self)
    }

    fn realm(&self) -> String {
        "anyone".into()
    }

    fn identity(&self) -> Option<&Identity> {
        None
    }
}

/// Identifies the holder of the credentials.
async fn identify(app: &App, credentials: &Credentials<'_>) -> Result<Arc<Identity>, Error> {
    let token = credentials.token.ok_or(auth::Denied::Missing)?;
    Ok(app.auth.identify(token).await?)
}

/// Identifies the holder of the credentials, and counts the request against the rate of the key, or
/// of the person behind a token.
async fn counted(app: &App, credentials: &Credentials<'_>) -> Result<Arc<Identity>, Error> {
    let identity = identify(app, credentials).await?;
    app.limits.take_key(identity.holder())?;
    Ok(identity)
}

/// A caller with valid credentials, in no particular workspace.
pub(crate) struct Person(pub Arc<Identity>);

impl Who for Person {
    async fn admit(app: &App, needs: Needs, credentials: &Credentials<'_>) -> Result<Self, Error> {
        let identity = counted(app, credentials).await?;
        identity.may(needs.scopes())?;
        Ok(Self(identity))
    }

    async fn readmit(
        self,
        app: &App,
        needs: Needs,
        credentials: &Credentials<'_>,
    ) -> Result<Self, Error> {
        let identity = identify(app, credentials).await?;
        identity.may(needs.scopes())?;
        Ok(Self(identity))
    }

    fn realm(&self) -> String {
        self.0.subject.as_str().to_owned()
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.0)
    }
}

impl Who for Member {
    async fn admit(app: &App, needs: Needs, credentials: &Credentials<'_>) -> Result<Self, Error> {
        let identity = counted(app, credentials).await?;
        let member = app.auth.enter(&identity, credentials.workspace)?;
        app.limits.take_workspace(member.workspace.as_str())?;
        member.may(needs.scopes())?;
        Ok(member)
    }

    async fn readmit(
        self,
        app: &App,
        needs: Needs,
        credentials: &Credentials<'_>,
    ) -> Result<Self, Error> {
        let identity = identify(app, credentials).await?;
        let member = identity.enter_again(&self.workspace, &self.workspace_name)?;
        member.may(needs.scopes())?;
        Ok(member)
    }

    fn realm(&self) -> String {
        self.workspace.as_str().to_owned()
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.who)
    }
}

/// Query parameters: strings that serde parses into a struct, described by its schema.
pub(crate) trait Query: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Query for T {}

/// A request body.
pub(crate) trait Input: Sized + Send + 'static {
    /// Whether a PUT or DELETE that takes this body honours `If-Match`.
    const GUARDED: bool = false;
    /// Whether the body is read at all.
    const READS: bool = true;
    /// Returns the schema of the body; `None` if no body is read.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    fn read(
        raw: &[u8],
        path: &Path,
        world: &World,
        checker: &OnceLock<Checker>,
    ) -> Result<Self, Error>;
}

/// No body; anything that is sent is ignored.
pub(crate) struct NoBody;

impl Input for NoBody {
    const READS: bool = false;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn read(_: &[u8], _: &Path, _: &World, _: &OnceLock<Checker>) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// No body, for a handler that honours `If-Match`.
pub(crate) struct Guarded;

impl Input for Guarded {
    const GUARDED: bool = true;
    const READS: bool = false;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn read(_: &[u8], _: &Path, _: &World, _: &OnceLock<Checker>) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// The body as received; the handler checks it.
pub(crate) struct Raw(pub Bytes);

impl Input for Raw {
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({"type": "object"}))
    }

    fn read(raw: &[u8], _: &Path, _: &World, _: &OnceLock<Checker>) -> Result<Self, Error> {
        Ok(Self(Bytes::copy_from_slice(raw)))
    }
}

/// A JSON body of a wire type.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Body<T> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: &[u8], _: &Path, _: &World, checker: &OnceLock<Checker>) -> Result<Self, Error> {
        typed(&|| json(raw), checker).map(Self)
    }
}

/// A JSON body with the wish for an object of a kind. Its name may come from the path or from the
/// server.
pub(crate) struct Wish<K>(pub K);

impl<K: Kind> Input for Wish<K> {
    const GUARDED: bool = true;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<K>())
    }

    fn read(
        raw: &[u8],
        path: &Path,
        world: &World,
        checker: &OnceLock<Checker>,
    ) -> Result<Self, Error> {
        let named = || {
            let mut value = json(raw)?;
            name_wish::<K>(&mut value, path, world);
            Ok(value)
        };
        typed(&named, checker).map(Self)
    }
}

/// Adds the name that the body has elsewhere, the one from the path, or one that the server makes, if
/// the body has none in its place.
fn name_wish<K: Kind>(value: &mut Value, path: &Path, world: &World) {
    let Some((last, steps)) = K::NAME_AT.split_last() else { return };
    let elsewhere = name_elsewhere(value, K::NAME_ALSO_AT);
    let mut at = value;
    for step in steps {
        let Value::Object(members) = at else { return };
        at = members.entry(*step).or_insert_with(|| Value::Object(Map::new()));
    }
    let Value::Object(members) = at else { return };
    let absent = members.get(*last).is_none_or(|name| name.is_null() || name.as_str() == Some(""));
    let of_an_object = path.0.len() > K::PARENTS.len();
    let name = match (elsewhere, K::NAMING) {
        _ if !absent => return,
        (Some(name), _) => name,
        _ if of_an_object => path.name().to_owned(),
        (None, Naming::Server { prefix }) => format!("{prefix}-{}", world.random_text(10)),
        (None, Naming::Caller) => return,
    };
    members.insert((*last).into(), Value::String(name));
}

/// Returns the name at another place of the body, if the kind has one there.
fn name_elsewhere(value: &Value, place: &[&str]) -> Option<String> {
    let (first, rest) = place.split_first()?;
    let found = rest.iter().try_fold(value.get(first)?, |at, step| at.get(step))?;
    found.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A request whose caller is known and whose body has arrived, before anything is parsed into the
/// types of its operation. Most checks are here, so that they are compiled only for the three kinds
/// of callers instead of for every operation.
struct Admitted<W> {
    who: W,
    version: ApiVersion,
    path: Path,
    raw: Gathered,
    key: Option<RequestKey>,
    parts: Parts,
}

impl<W: Who> Admitted<W> {
    async fn read(
        app: &App,
        line: &Line,
        request: Request,
        reads_body: bool,
    ) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let version = headers::version(&parts.headers)?;
        let path = path(&mut parts).await?;
        let named = named_workspace(&path, line, parts.uri.query().unwrap_or_default());
        let credentials = Credentials {
            token: headers::bearer(&parts.headers),
            workspace: named.as_deref().or_else(|| headers::workspace(&parts.headers)),
        };
        let who = W::admit(app, line.needs, &credentials).await?;
        note_sign_in(&parts.extensions, who.identity());
        let room = match who.identity() {
            Some(_) => app.bodies.of_caller(who.realm()),
            None => app.bodies.of_stranger(&parts.extensions),
        };
        let mut raw = match reads_body {
            true => bodies::gather(body, app.settings.body_max, room).await?,
            false => bodies::pass_over(body, app.settings.body_max, room).await?,
        };
        // The body may have come long after the head, and the caller may have lost the right since.
        // From here, the transaction follows as fast as the server gets to it, which no caller can
        // put off: a right that is lost in between counts as lost after this request.
        let who = who.readmit(app, line.needs, &credentials).await?;
        raw.as_values()?;
        let key = idempotency::key(app, &parts, &raw, &who)?;
        Ok(Self { who, version, path, raw, key, parts })
    }
}

impl<W: Who, Q: Query, B: Input> Call<W, Q, B> {
    /// Checks a request in the order in which a caller can fix it: version, path, credentials,
    /// rights, body, query, and `If-Match`.
    pub(crate) async fn read(
        app: App,
        operation: &Operation,
        request: Request,
    ) -> Result<Self, Error> {
        let Operation { line, checker, .. } = operation;
        let Admitted { who, version, path, raw, key, parts } =
            Admitted::<W>::read(&app, line, request, B::READS).await?;
        let body = B::read(&raw, &path, &app.world, checker)?;
        let query = parse_query(parts.uri.query().unwrap_or_default())?;
        let if_match = headers::if_match(&parts.headers)?;
        let long = parts.extensions.get::<LongRequest>().cloned().unwrap_or_default();
        Ok(Self {
            app,
            who,
            path,
            query,
            body,
            version,
            needs: line.needs,
            key,
            if_match,
            headers: parts.headers,
            long,
            room: Arc::new(raw.room),
        })
    }
}

impl<Q, B> Call<Member, Q, B> {
    /// Returns the context for the rules, to take into a transaction.
    pub(crate) fn context(&self) -> Context {
        Context { control: self.app.control().clone(), member: self.who.clone() }
    }
}

impl<W, Q, B> Call<W, Q, B> {
    /// Returns the same call for a handler without query parameters.
    pub(crate) fn without_query(self) -> Call<W, NoQuery, B> {
        let Self { app, who, path, query: _, body, version, needs, .. } = self;
        let Self { key, if_match, headers, long, room, .. } = self;
        Call {
            app,
            who,
            path,
            query: NoQuery {},
            body,
            version,
            needs,
            key,
            if_match,
            headers,
            long,
            room,
        }
    }
}

/// Tells the connection that its caller is now known.
pub(crate) fn note_sign_in(extensions: &Extensions, who: Option<&Identity>) {
    if let (Some(connection), Some(who)) = (extensions.get::<Connection>(), who) {
        connection.signed_in(who.holder());
    }
}

async fn path(parts: &mut Parts) -> Result<Path, Error> {
    let params =
        RawPathParams::from_request_parts(parts, &()).await.map_err(|_| Malformed::PathNotUtf8)?;
    let values: Vec<String> = params.iter().map(|(_, value)| value.to_owned()).collect();
    if values.iter().any(|value| value.contains('\0')) {
        return Err(Malformed::PathNul.into());
    }
    Ok(Path(values))
}

/// Returns the workspace named in the address: in the path of inference addresses, else in
/// `?workspace=`.
fn named_workspace(path: &Path, line: &Line, query: &str) -> Option<String> {
    if line.path.starts_with("/{workspace}/") {
        return Some(path.at(0).to_owned());
    }
    // In billing queries, `workspace` is a filter and not the place to act in.
    if line.path.starts_with("/accounts") {
        return None;
    }
    let named = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "workspace");
    named.map(|(_, value)| value.into_owned()).filter(|name| !name.is_empty())
}
