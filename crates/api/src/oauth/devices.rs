//! The device page, where a person signs in a program that has no browser.

use super::Body;
use super::authorize::what;
use super::browser::{Browser, sign_in_first};
use super::page::{self, Answered, page};
use super::sign_in::sentence;
use auth::Auth;
use auth::oauth::{Asking, DeviceError, Params};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};

const TITLE: &str = "Sign in a device";

pub(crate) async fn show(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let query = query.unwrap_or_default();
    let Some(user) = browser.user(&auth).await? else {
        return Ok(sign_in_first(&format!("/oauth/device?{query}")));
    };
    let params = Params::from_form(query.as_bytes()).unwrap_or_default();
    let Some(code) = params.get("user_code") else {
        return Ok(browser.remember(page(StatusCode::OK, TITLE, &ask_for_code(None))));
    };
    Ok(match auth.device(&user, code).await {
        Ok(asking) => {
            browser.remember(page(StatusCode::OK, TITLE, &confirm(&asking, &user.email, &browser)))
        }
        Err(error) => refused(&error),
    })
}

pub(crate) async fn decide(
    State(auth): State<Auth>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let form = browser.form(&body)?;
    let Some(user) = browser.user(&auth).await? else {
        return Ok(sign_in_first("/oauth/device"));
    };
    let agree = form.get("decision") == Some("allow");
    Ok(match auth.decide_device(&user, form.get("user_code").unwrap_or_default(), agree).await {
        Ok(()) if agree => page(
            StatusCode::OK,
            "Done",
            &html! { p { "Your device is signed in. You can close this page." } },
        ),
        Ok(()) => page(
            StatusCode::OK,
            "Refused",
            &html! { p { "The device was not signed in. You can close this page." } },
        ),
        Err(error) => refused(&error),
    })
}

fn refused(error: &DeviceError) -> Response {
    let status = match error {
        DeviceError::Store(error) => return page::failed(error),
        DeviceError::Unknown => StatusCode::NOT_FOUND,
        DeviceError::Throttled(_) => StatusCode::TOO_MANY_REQUESTS,
    };
    page(status, TITLE, &ask_for_code(Some(&sentence(error))))
}

fn ask_for_code(wrong: Option<&str>) -> Markup {
    html! {
        @if let Some(text) = wrong { p.wrong role="alert" { (text) } }
        form method="get" action="/oauth/device" {
            label {
                "Code that your device shows"
                input.code name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="16" required;
            }
            button type="submit" { "Continue" }
        }
    }
}

fn confirm(asking: &Asking, email: &str, browser: &Browser) -> Markup {
    html! {
        p { strong { bdi { (asking.client_name) } } " asks to be signed in as " (email) ". Does it show this code?" }
        p.code { (asking.user_code) }
        (what(asking.scopes))
        p.soft { "If you did not start this yourself, do not allow it: somebody may be trying to use your account." }
        form method="post" action="/oauth/device" {
            (browser.proof())
            input type="hidden" name="user_code" value=(asking.user_code);
            button type="submit" name="decision" value="allow" { "Allow" }
            button.second type="submit" name="decision" value="refuse" { "Do not allow" }
        }
    }
}
