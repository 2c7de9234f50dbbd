//! One operation of the API: its line in the table, and how a request becomes a call of its
//! handler.

use crate::app::App;
use crate::http::call::{Call, Input, Query, Who};
use crate::http::error::{Error, ProblemsForm};
use crate::http::reply::Answer;
use crate::http::sent;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::Method;
use schemars::{Schema, SchemaGenerator};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use types::Scope;
use types::schema::Checker;

/// The rights that an operation requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Anyone may call, without credentials.
    Nothing,
    /// Any valid credential will do.
    Bearer,
    /// All of these scopes.
    Scopes(&'static [Scope]),
}

impl Needs {
    /// The need of an operation that declares none of its own.
    pub(crate) const ADMIN: Self = Self::Scopes(&[Scope::Admin]);

    /// Needs all of these scopes; those of an administrator if there are none, since a list
    /// without scopes would let everyone in who has a credential.
    pub(crate) const fn all_of(scopes: &'static [Scope]) -> Self {
        if scopes.is_empty() { Self::ADMIN } else { Self::Scopes(scopes) }
    }

    pub(crate) fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Nothing | Self::Bearer => &[],
            Self::Scopes(scopes) => scopes,
        }
    }
}

/// The prefix under which an operation is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// `/v0`, and `/api` for clients behind their own proxy.
    Management,
    /// The inference addresses: the root, and `/run` for clients behind their own proxy.
    Inference,
}

/// A line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub method: Method,
    pub base: Base,
    pub path: &'static str,
    pub id: String,
    pub summary: String,
    pub needs: Needs,
}

/// The parts of the OpenAPI document that follow from the types of the handler.
pub(crate) struct Shape {
    pub query: Schema,
    pub body: Option<Schema>,
    pub answers: Vec<(u16, Option<Schema>)>,
    /// Whether `If-Match` is honoured.
    pub guarded: bool,
}

type Running = BoxFuture<'static, Result<Response, Error>>;

/// A handler whose types nobody needs to know any more. There are hundreds of handlers, so nothing
/// is done here that can be done without their types.
pub(crate) struct Handler {
    shape: fn(&mut SchemaGenerator) -> Shape,
    run: Box<dyn Fn(App, Arc<Operation>, Request) -> Running + Send + Sync>,
}

impl Handler {
    pub(crate) fn of<W, Q, B, A, F, R>(handler: F) -> Self
    where
        W: Who,
        Q: Query,
        B: Input,
        A: Answer,
        F: Fn(Call<W, Q, B>) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Error>> + Send + 'static,
    {
        let run = move |app: App, operation: Arc<Operation>, request: Request| -> Running {
            Box::pin(async move {
                let call = Call::read(app, &operation, request).await?;
                let room = Arc::clone(&call.room);
                let response = handler(call).await?.into_response();
                Ok(sent::counted(response, &operation.line.method, room)?)
            })
        };
        Self { shape: shape::<Q, B, A>, run: Box::new(run) }
    }
}

/// A line of the table with its handler.
pub(crate) struct Operation {
    pub line: Line,
    /// Checks the bodies of its requests. It is made when the first one arrives.
    pub checker: OnceLock<Checker>,
    handler: Handler,
}

impl Operation {
    pub(crate) const fn new(line: Line, handler: Handler) -> Self {
        Self { line, checker: OnceLock::new(), handler }
    }

    pub(crate) fn shape(&self, generator: &mut SchemaGenerator) -> Shape {
        (self.handler.shape)(generator)
    }

    pub(crate) async fn answer(self: Arc<Self>, app: App, request: Request) -> Response {
        let answer = (self.handler.run)(app, Arc::clone(&self), request).await;
        answer.unwrap_or_else(|error| error.answer(ProblemsForm::of(&self.line)))
    }
}

fn shape<Q: Query, B: Input, A: Answer>(generator: &mut SchemaGenerator) -> Shape {
    Shape {
        query: Q::json_schema(generator),
        body: B::schema(generator),
        answers: A::describe(generator),
        guarded: B::GUARDED,
    }
}
