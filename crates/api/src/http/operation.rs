//! One operation of the API: its line in the table, and how a request becomes a call of its
//! handler.

use crate::app::App;
use crate::http::call::{Call, Input, Query, Who};
use crate::http::error::Error;
use crate::http::reply::Answer;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::Method;
use schemars::{Schema, SchemaGenerator};
use std::future::Future;
use std::pin::Pin;
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

type Running = Pin<Box<dyn Future<Output = Response> + Send>>;

pub(crate) struct Operation {
    pub line: Arc<Line>,
    pub shape: fn(&mut SchemaGenerator) -> Shape,
    pub run: Arc<dyn Fn(App, Request) -> Running + Send + Sync>,
}

impl Operation {
    /// Combines a line of the table with its handler.
    pub(crate) fn new<W, Q, B, A, F, R>(line: Line, handler: F) -> Self
    where
        W: Who,
        Q: Query,
        B: Input,
        A: Answer,
        F: Fn(Call<W, Q, B>) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Error>> + Send + 'static,
    {
        let line = Arc::new(line);
        let (rules, checker) = (Arc::clone(&line), Arc::new(OnceLock::<Checker>::new()));
        let run = move |app: App, request: Request| -> Running {
            let (rules, checker) = (Arc::clone(&rules), Arc::clone(&checker));
            Box::pin(async move {
                match Call::read(app, &rules, &checker, request).await {
                    Ok(call) => match handler(call).await {
                        Ok(answer) => answer.into_response(),
                        Err(error) => error.into_response(),
                    },
                    Err(error) => error.into_response(),
                }
            })
        };
        Self { line, shape: shape::<Q, B, A>, run: Arc::new(run) }
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
