//! Sign-in through an external provider.

use super::From;
use super::browser::{Browser, Cookie, safe_next};
use super::page::{self, see_other};
use super::sign_in::sentence;
use auth::Auth;
use auth::oauth::Params;
use auth::outside::OutsideError;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};

pub(crate) async fn begin(
    State(auth): State<Auth>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let browser = Browser::of(&auth, headers);
    let params = Params::from_form(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let secret = auth.new_outside_secret();
    match auth.begin_outside(&secret).await {
        Ok(location) => {
            let mut response = see_other(&location);
            browser.set(&mut response, Cookie::Outside, &secret);
            browser.set(&mut response, Cookie::Next, safe_next(params.get("next")));
            response
        }
        Err(error) => refused(&error),
    }
}

pub(crate) async fn finish(
    State(auth): State<Auth>,
    From(client): From,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let browser = Browser::of(&auth, headers);
    let Ok(params) = Params::from_form(query.unwrap_or_default().as_bytes()) else {
        return refused(&OutsideError::NotBegun);
    };
    let Some(secret) = browser.get(Cookie::Outside) else {
        return refused(&OutsideError::NotBegun);
    };
    match auth.finish_outside(client, &secret, &params).await {
        Ok(session) => {
            let next = browser.get(Cookie::Next);
            let mut response = see_other(safe_next(next.as_deref()));
            browser.clear(&mut response, Cookie::Outside);
            browser.clear(&mut response, Cookie::Next);
            browser.set(&mut response, Cookie::Session, &session);
            response
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &OutsideError) -> Response {
    let status = match error {
        OutsideError::Store(error) => return page::failed(error),
        OutsideError::Off => StatusCode::NOT_FOUND,
        OutsideError::NotBegun | OutsideError::Declined(_) => StatusCode::BAD_REQUEST,
        OutsideError::Throttled(_) => StatusCode::TOO_MANY_REQUESTS,
        OutsideError::Unverified | OutsideError::NotInvited(_) | OutsideError::NotAccepted(_) => {
            StatusCode::FORBIDDEN
        }
        OutsideError::Provider(_) => StatusCode::BAD_GATEWAY,
    };
    page::wrong(status, "You are not signed in", &sentence(error))
}
