//! The consent page, where a person allows a program to act for them.

use super::Body;
use super::browser::{Browser, sign_in_first};
use super::page::{self, Answered, page_leading_to, see_other};
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
) -> Result<Response, Answered> {
    let query = query.unwrap_or_default();
    let request = check(&auth, &query).await?;
    let browser = Browser::of(&auth, headers);
    let Some(user) = browser.user(&auth).await? else {
        return Ok(sign_in_first(&address(&query)));
    };
    let content = consent(&request, &user.email, &query, &browser);
    let destination = destination(&request.redirect_uri);
    Ok(browser.remember(page_leading_to(
        StatusCode::OK,
        "Allow access?",
        &content,
        destination.as_deref(),
    )))
}

pub(crate) async fn decide(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Answered> {
    let query = query.unwrap_or_default();
    let browser = Browser::of(&auth, headers);
    let form = browser.form(&body)?;
    let request = check(&auth, &query).await?;
    let Some(user) = browser.user(&auth).await? else {
        return Ok(sign_in_first(&address(&query)));
    };
    let location = match form.get("decision") {
        Some("allow") => auth.approve(&request, &user).await?,
        _ => auth.refuse(&request),
    };
    Ok(see_other(&location))
}

fn address(query: &str) -> String {
    format!("/oauth/authorize?{query}")
}

async fn check(auth: &Auth, query: &str) -> Result<Request, Answered> {
    let refused = |text: &str| -> Answered {
        page::wrong(StatusCode::BAD_REQUEST, "This request cannot be shown", text).into()
    };
    let params =
        Params::from_form(query.as_bytes()).map_err(|fault| refused(&fault.to_string()))?;
    auth.check_authorization(&params).await.map_err(|wrong| match wrong {
        Wrong::Show(text) => refused(&text),
        Wrong::Redirect(location) => see_other(&location).into(),
        Wrong::Store(error) => error.into(),
    })
}

fn consent(request: &Request, email: &str, query: &str, browser: &Browser) -> Markup {
    html! {
        p { strong { bdi { (request.client_name) } } " asks to act for you, " (email) ", in all your workspaces." }
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
