//! The browser that sends a request: its cookies, its session, and proof that its forms are ours.

use super::page;
use auth::Auth;
use auth::oauth::Params;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::{Markup, html};
use sha2::{Digest, Sha256};

const COOKIE_BYTES_MAX: usize = 3000;

/// Cookies of ours.
#[derive(Clone, Copy)]
pub(super) enum Cookie {
    /// The secret of the session.
    Session,
    /// The secret from which tokens in forms are derived.
    Form,
    /// The secret of a sign-in at the outside provider.
    Outside,
    /// Where to go after that sign-in.
    Next,
}

impl Cookie {
    const fn life_s(self) -> i64 {
        match self {
            Self::Session => auth::sessions::LIFE_S,
            Self::Form => 24 * 3600,
            Self::Outside | Self::Next => 600,
        }
    }

    /// Over TLS the prefix makes browsers refuse such a cookie from any other host.
    fn name(self, secure: bool) -> String {
        let name = match self {
            Self::Session => "holm_session",
            Self::Form => "holm_form",
            Self::Outside => "holm_outside",
            Self::Next => "holm_next",
        };
        format!("{}{name}", if secure { "__Host-" } else { "" })
    }
}

/// What a request says of its browser.
pub(super) struct Browser {
    secure: bool,
    headers: HeaderMap,
    form: String,
    form_is_new: bool,
}

impl Browser {
    pub(super) fn of(auth: &Auth, headers: HeaderMap) -> Self {
        let secure = auth.issuer().starts_with("https:");
        let known = cookie(&headers, &Cookie::Form.name(secure));
        let form_is_new = known.is_none();
        let form = known.unwrap_or_else(|| auth.world().random_text(40));
        Self { secure, headers, form, form_is_new }
    }

    pub(super) fn get(&self, which: Cookie) -> Option<String> {
        cookie(&self.headers, &which.name(self.secure))
    }

    /// Who is signed in.
    pub(super) async fn user(&self, auth: &Auth) -> Result<Option<store::identity::users::User>, store::Error> {
        match self.get(Cookie::Session) {
            Some(secret) => auth.session(&secret).await,
            None => Ok(None),
        }
    }

    /// The hidden field that every form carries.
    pub(super) fn proof(&self) -> Markup {
        html! { input type="hidden" name="proof" value=(self.proof_text()); }
    }

    fn proof_text(&self) -> String {
        BASE64.encode(Sha256::digest(format!("form:{}", self.form).as_bytes()))
    }

    /// Reads a form; refuses those that another site made.
    pub(super) fn form(&self, body: &[u8]) -> Result<Params, Box<Response>> {
        let refuse = |text: &str| Box::new(page::wrong(StatusCode::FORBIDDEN, "This form is not valid any more", text));
        let elsewhere = self.headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        let params =
            Params::from_form(body).map_err(|_| refuse("The form could not be read. Go back and try again."))?;
        if elsewhere || self.form_is_new || params.get("proof") != Some(self.proof_text().as_str()) {
            return Err(refuse("Go back, reload the page and try again. Cookies must be allowed."));
        }
        Ok(params)
    }

    /// Gives the browser what its next form needs.
    pub(super) fn remember(&self, mut response: Response) -> Response {
        if self.form_is_new {
            self.set(&mut response, Cookie::Form, &self.form);
        }
        response
    }

    pub(super) fn set(&self, response: &mut Response, which: Cookie, value: &str) {
        self.write(response, which, value, which.life_s());
    }

    pub(super) fn clear(&self, response: &mut Response, which: Cookie) {
        self.write(response, which, "", 0);
    }

    fn write(&self, response: &mut Response, which: Cookie, value: &str, life_s: i64) {
        let secure = if self.secure { "; Secure" } else { "" };
        let name = which.name(self.secure);
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={life_s}{secure}");
        if let Ok(text) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::SET_COOKIE, text);
        }
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value)?;
    (!value.is_empty() && value.len() <= COOKIE_BYTES_MAX).then(|| value.to_owned())
}

/// Where to go after signing in: only to pages of ours, so that nobody can lead a person elsewhere.
pub(super) fn safe_next(next: Option<&str>) -> &str {
    const KNOWN: [&str; 3] = ["/oauth/authorize?", "/oauth/device", "/oauth/join?"];
    match next {
        Some(next) if KNOWN.iter().any(|known| next.starts_with(known)) && next.bytes().all(is_plain) => next,
        _ => "/oauth/sign-in",
    }
}

/// What an address may hold as it is written in headers; a backslash counts as a slash in browsers, and `;` ends a
/// cookie.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'\\' | b';' | b',' | b'"')
}

/// Asks to sign in first, then to come back.
pub(super) fn sign_in_first(next: &str) -> Response {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    page::see_other(&format!("/oauth/sign-in?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nobody_is_led_elsewhere_after_signing_in() {
        assert_eq!(safe_next(Some("/oauth/device?user_code=X")), "/oauth/device?user_code=X");
        for next in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/oauth/../../evil",
            "",
            "/oauth/authorize?\r\nX: y",
            "/oauth/device\\x",
        ] {
            assert_eq!(safe_next(Some(next)), "/oauth/sign-in", "{next}");
        }
    }

    proptest! {
        #[test]
        fn any_next_stays_here(next in "(/oauth/(authorize\\?|device|join\\?))?.{0,40}") {
            prop_assert!(safe_next(Some(&next)).starts_with("/oauth/"));
        }
    }
}
