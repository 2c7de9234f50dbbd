//! The pages for signing in and out.

use super::browser::{Browser, Cookie, safe_next};
use super::page::{Answered, page, see_other};
use super::{Body, From};
use auth::Auth;
use auth::oauth::Params;
use auth::sessions::SignInError;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};

pub(crate) async fn show(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let params = Params::from_form(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let next = safe_next(params.get("next"));
    let (title, content) = match browser.user(&auth).await? {
        Some(user) => ("You are signed in", signed_in(&user.email, &browser)),
        None => ("Sign in", form(&auth, &browser, next, "", None)),
    };
    Ok(browser.remember(page(StatusCode::OK, title, &content)))
}

pub(crate) async fn submit(
    State(auth): State<Auth>,
    From(client): From,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    let params = browser.form(&body)?;
    let email = params.get("email").unwrap_or_default();
    let password = params.get("password").unwrap_or_default().to_owned();
    let next = safe_next(params.get("next"));
    let known = browser.get(Cookie::Known);
    let (status, text) = match auth.sign_in(client, email, password, known.as_deref()).await {
        Ok(signed_in) => {
            let mut response = see_other(next);
            browser.set(&mut response, Cookie::Session, &signed_in.session);
            browser.set(&mut response, Cookie::Known, &signed_in.known);
            return Ok(response);
        }
        Err(SignInError::Store(error)) => return Err(error.into()),
        Err(error @ SignInError::Wrong) => (StatusCode::UNAUTHORIZED, sentence(&error)),
        Err(error @ SignInError::Throttled(_)) => (StatusCode::TOO_MANY_REQUESTS, sentence(&error)),
        Err(error @ SignInError::Crowded(_)) => (StatusCode::SERVICE_UNAVAILABLE, sentence(&error)),
    };
    Ok(page(status, "Sign in", &form(&auth, &browser, next, email, Some(&text))))
}

pub(crate) async fn sign_out(
    State(auth): State<Auth>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Answered> {
    let browser = Browser::of(&auth, headers);
    browser.form(&body)?;
    if let Some(secret) = browser.get(Cookie::Session) {
        auth.sign_out(&secret).await?;
    }
    let mut response = see_other("/oauth/sign-in");
    browser.clear(&mut response, Cookie::Session);
    Ok(response)
}

fn form(auth: &Auth, browser: &Browser, next: &str, email: &str, wrong: Option<&str>) -> Markup {
    let outside =
        form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    html! {
        @if let Some(text) = wrong { p.wrong role="alert" { (text) } }
        form method="post" action="/oauth/sign-in" {
            (browser.proof())
            input type="hidden" name="next" value=(next);
            label { "Email" input type="email" name="email" value=(email) autocomplete="username" required; }
            label { "Password" input type="password" name="password" autocomplete="current-password" required; }
            button type="submit" { "Sign in" }
        }
        @if let Some(name) = auth.outside() {
            a.button.second href={ "/oauth/outside?" (outside) } { "Sign in with " (name) }
        }
    }
}

fn signed_in(email: &str, browser: &Browser) -> Markup {
    html! {
        p { "You are " strong { (email) } "." }
        form method="post" action="/oauth/sign-out" {
            (browser.proof())
            button.second type="submit" { "Sign out" }
        }
    }
}

/// Formats an error as a sentence for a page. An address at its beginning stays as it was typed.
pub(super) fn sentence(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    if text.split(' ').next().is_some_and(|word| word.contains('@')) {
        return format!("{text}.");
    }
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::outside::OutsideError;

    #[test]
    fn a_sentence_begins_with_a_capital_but_an_address_stays_as_it_is() {
        let text = sentence(&OutsideError::NotInvited("new@x.example".into()));
        assert!(text.starts_with("new@x.example has no account"), "{text}");
        assert_eq!(sentence(&SignInError::Wrong), "The address or the password is wrong.");
    }
}
