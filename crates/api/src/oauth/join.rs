//! The page for accepting an invitation by its link.

use super::browser::{Browser, Cookie};
use super::page::{self, Answered, page};
use super::sign_in::sentence;
use super::{Body, From};
use auth::invitations::{self, Received};
use auth::oauth::Params;
use auth::sessions::Joining;
use auth::{Auth, Error};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};
use types::ids::InvitationId;

const TITLE: &str = "Join a workspace";

pub(crate) async fn show(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let params = Params::from_form(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let id = InvitationId::known(params.get("invitation").unwrap_or_default());
    let found = match open(&auth, &id).await {
        Ok(found) => found,
        Err(error) => return Ok(refused(&error)),
    };
    let user = browser.user(&auth).await?;
    let signed_in = user.is_some_and(|user| user.email == found.invitation.email);
    Ok(browser.remember(page(StatusCode::OK, TITLE, &content(&found, signed_in, &browser, None))))
}

pub(crate) async fn submit(
    State(auth): State<Auth>,
    From(client): From,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let form = browser.form(&body)?;
    let id = InvitationId::known(form.get("invitation").unwrap_or_default());
    let user = browser.user(&auth).await?;
    let Some(password) = form.get("password") else {
        let Some(user) = user else { return Ok(refused(&Error::Denied(auth::Denied::Missing))) };
        return Ok(match auth.accept(&user, &id).await {
            Ok(workspace) => joined(&workspace.display_name),
            Err(error) => refused(&error),
        });
    };
    let part = |name: &str| form.get(name).unwrap_or_default().chars().take(63).collect();
    let joining = Joining { given_name: part("given_name"), family_name: part("family_name") };
    Ok(match auth.join(client, &id, joining, password.to_owned()).await {
        Ok((workspace, secret)) => {
            let mut response = joined(&workspace.display_name);
            browser.set(&mut response, Cookie::Session, &secret);
            response
        }
        Err(error @ Error::Invalid(_)) => match open(&auth, &id).await {
            Ok(found) => page(
                StatusCode::BAD_REQUEST,
                TITLE,
                &content(&found, false, &browser, Some(&sentence(&error))),
            ),
            Err(error) => refused(&error),
        },
        Err(error) => refused(&error),
    })
}

async fn open(auth: &Auth, id: &InvitationId) -> Result<Received, Error> {
    let id = id.clone();
    auth.store().read(move |tx| invitations::open(tx, &id)).await
}

fn joined(workspace: &str) -> Response {
    page(
        StatusCode::OK,
        "Welcome",
        &html! { p { "You belong to the workspace " strong { bdi { (workspace) } } " now." } },
    )
}

fn refused(error: &Error) -> Response {
    match error {
        Error::Store(error) => page::failed(error),
        Error::Crowded(_) => page::wrong(StatusCode::SERVICE_UNAVAILABLE, TITLE, &sentence(error)),
        Error::NotFound { .. } => page::wrong(
            StatusCode::NOT_FOUND,
            TITLE,
            "This invitation is not open any more. Ask for a new one.",
        ),
        _ => page::wrong(StatusCode::BAD_REQUEST, TITLE, &sentence(error)),
    }
}

fn content(found: &Received, signed_in: bool, browser: &Browser, wrong: Option<&str>) -> Markup {
    html! {
        p {
            bdi { (found.invitation.invited_by) } " invites " strong { (found.invitation.email) } " to the workspace "
            strong { bdi { (found.workspace.display_name) } } "."
        }
        @if let Some(text) = wrong { p.wrong role="alert" { (text) } }
        form method="post" action="/oauth/join" {
            (browser.proof())
            input type="hidden" name="invitation" value=(found.invitation.id);
            @if !signed_in {
                label { "Given name" input name="given_name" autocomplete="given-name" maxlength="63"; }
                label { "Family name" input name="family_name" autocomplete="family-name" maxlength="63"; }
                label {
                    "New password"
                    input type="password" name="password" autocomplete="new-password" minlength="10" maxlength="256" required;
                }
            }
            button type="submit" { "Join" }
        }
        @if !signed_in {
            p.soft { "Do you have an account here? " a href={ "/oauth/sign-in?next=/oauth/join%3Finvitation%3D" (found.invitation.id) } { "Sign in" } " first." }
        }
    }
}
