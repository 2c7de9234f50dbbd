//! The consent page, where a person allows a program to act for them.

use super::Body;
use super::browser::{Browser, sign_in_first};
use super::page::{self, page_leading_to, see_other};
use auth::oauth::{Params, Request, Wrong};
use auth::{Auth, ScopeSet};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};

/// Redirects to the page below `/oauth`, because cookies are bound to that path.
pub(crate) async fn elsewhere(RawQuery(query): RawQuery) -> Response {
    see_other(&address(&query.unwrap_or_default()))
}

pub(crate) async fn show(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let query = query.unwrap_or_default();
    let request = match check(&auth, &query).await {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let browser = Browser::of(&auth, headers);
    let content = match browser.user(&auth).await {
        Ok(Some(user)) => consent(&request, &user.email, &query, &browser),
        Ok(None) => return sign_in_first(&address(&query)),
        Err(error) => return page::failed(&error),
    };
    let destination = destination(&request.redirect_uri);
    browser.remember(page_leading_to(
        StatusCode::OK,
        "Allow access?",
        &content,
        destination.as_deref(),
    ))
}

pub(crate) async fn decide(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    Body(body): Body,
) -> Response {
    let query = query.unwrap_or_default();
    let browser = Browser::of(&auth, headers);
    let form = match browser.form(&body) {
        Ok(form) => form,
        Err(response) => return *response,
    };
    let request = match check(&auth, &query).await {
        Ok(request) => request,
        Err(response) => return *response,
    };
    match (browser.user(&auth).await, form.get("decision")) {
        (Ok(Some(user)), Some("allow")) => match auth.approve(&request, &user).await {
            Ok(location) => see_other(&location),
            Err(error) => page::failed(&error),
        },
        (Ok(Some(_)), _) => see_other(&auth.refuse(&request)),
        (Ok(None), _) => sign_in_first(&address(&query)),
        (Err(error), _) => page::failed(&error),
    }
}

fn address(query: &str) -> String {
    format!("/oauth/authorize?{query}")
}

async fn check(auth: &Auth, query: &str) -> Result<Request, Box<Response>> {
    let refused = |text: &str| {
        Box::new(page::wrong(StatusCode::BAD_REQUEST, "This request cannot be shown", text))
    };
    let params =
        Params::from_form(query.as_bytes()).map_err(|fault| refused(&fault.to_string()))?;
    auth.check_authorization(&params).await.map_err(|wrong| match wrong {
        Wrong::Show(text) => refused(&text),
        Wrong::Redirect(location) => Box::new(see_other(&location)),
        Wrong::Store(error) => Box::new(page::failed(&error)),
    })
}

fn consent(request: &Request, email: &str, query: &str, browser: &Browser) -> Markup {
    html! {
        p { strong { (request.client_name) } " asks to act for you, " (email) ", in all your workspaces." }
        (what(request.scopes))
        p.soft { "You will be sent to " (request.redirect_uri) }
        form method="post" action=(address(query)) {
            (browser.proof())
            button type="submit" name="decision" value="allow" { "Allow" }
            button.second type="submit" name="decision" value="refuse" { "Do not allow" }
        }
    }
}

/// Describes in words what would be allowed.
pub(super) fn what(scopes: ScopeSet) -> Markup {
    html! {
        @if scopes == ScopeSet::everything() {
            p { "It may do everything that you may do." }
        } @else {
            p { "It may do only this:" }
            ul { @for scope in scopes.iter() { li { (scope) } } }
        }
    }
}

/// Returns the origin or scheme that the page's policy must allow as the target of its form.
fn destination(redirect_uri: &str) -> Option<String> {
    let (scheme, rest) = redirect_uri.split_once(':')?;
    match rest.strip_prefix("//") {
        Some(rest) if matches!(scheme, "http" | "https") => {
            let host = rest.split(['/', '?']).next()?;
            Some(format!("{scheme}://{host}"))
        }
        _ => Some(format!("{scheme}:")),
    }
}
