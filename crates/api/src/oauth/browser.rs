//! The browser that sends a request: its cookies, its session, and the proof that a form is ours.

use super::page::{self, Answered};
use auth::Auth;
use auth::oauth::Params;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use types::browser::{COOKIE_PREFIX, Fetch};

const COOKIE_BYTES_MAX: usize = 3000;

/// Our cookies.
#[derive(Clone, Copy)]
pub(super) enum Cookie {
    /// The secret of the session.
    Session,
    /// The secret from which tokens in forms are derived.
    Form,
    /// The secret of a sign-in at the outside provider.
    Outside,
    /// The page to visit after that sign-in.
    Next,
    /// By which the browser is known as one of an account's.
    Known,
}

impl Cookie {
    const fn life_s(self) -> i64 {
        match self {
            Self::Session => auth::sessions::LIFE_S,
            Self::Form => 24 * 3600,
            Self::Outside | Self::Next => 600,
            Self::Known => auth::known_browser::LIFE_S,
        }
    }

    /// Returns the name of the cookie. Over TLS, the prefix makes browsers refuse such a cookie
    /// from any other host. The proxy for workloads recognizes our cookies by
    /// [`types::browser::COOKIE_PREFIX`].
    fn name(self, secure: bool) -> String {
        let name = match self {
            Self::Session => "session",
            Self::Form => "form",
            Self::Outside => "outside",
            Self::Next => "next",
            Self::Known => "known",
        };
        format!("{}{COOKIE_PREFIX}{name}", if secure { "__Host-" } else { "" })
    }
}

/// The browser-related parts of a request.
pub(super) struct Browser {
    secure: bool,
    /// The host of our own pages according to the settings, with its port.
    own_host: String,
    headers: HeaderMap,
    form: String,
    form_is_new: bool,
}

impl Browser {
    pub(super) fn of(auth: &Auth, headers: HeaderMap) -> Self {
        let secure = auth.issuer().starts_with("https:");
        let own_host = auth.issuer().split('/').nth(2).unwrap_or_default().to_owned();
        let known = cookie(&headers, &Cookie::Form.name(secure));
        let form_is_new = known.is_none();
        let form = known.unwrap_or_else(|| auth.world().random_text(40));
        Self { secure, own_host, headers, form, form_is_new }
    }

    pub(super) fn get(&self, which: Cookie) -> Option<String> {
        cookie(&self.headers, &which.name(self.secure))
    }

    /// Returns the signed-in user. For what a page of another origin asks for unseen, nobody is
    /// signed in: browsers send the session with it if only the host or the port differs, and such
    /// a page could use up a person's attempts at device codes.
    pub(super) async fn user(
        &self,
        auth: &Auth,
    ) -> Result<Option<store::identity::users::User>, store::Error> {
        match self.get(Cookie::Session).filter(|_| !self.is_unseen()) {
            Some(secret) => auth.session(&secret).await,
            None => Ok(None),
        }
    }

    /// Returns whether a page of another origin sent the request, and no window shows the answer.
    fn is_unseen(&self) -> bool {
        let opens = Fetch::of("GET", |name| self.field(name)).opens_page();
        self.is_from_elsewhere() && (!opens || self.field("sec-purpose").is_some())
    }

    /// Returns the hidden field that every form contains.
    pub(super) fn proof(&self) -> Markup {
        html! { input type="hidden" name="proof" value=(self.proof_text()); }
    }

    fn proof_text(&self) -> String {
        BASE64.encode(Sha256::digest(format!("form:{}", self.form).as_bytes()))
    }

    /// Parses a form, and refuses forms that another site has made.
    pub(super) fn form(&self, body: &[u8]) -> Result<Params, Answered> {
        let refuse = |text: &str| {
            page::wrong(StatusCode::FORBIDDEN, "This form is not valid any more", text).into()
        };
        let params = Params::from_form(body)
            .map_err(|_| refuse("The form could not be read. Go back and try again."))?;
        if self.is_from_elsewhere()
            || self.form_is_new
            || params.get("proof") != Some(self.proof_text().as_str())
        {
            return Err(refuse("Go back, reload the page and try again. Cookies must be allowed."));
        }
        Ok(params)
    }

    /// Returns whether a page of another origin sent the request. Content of workspaces counts as
    /// another origin even if only the port differs, which cookies do not distinguish.
    fn is_from_elsewhere(&self) -> bool {
        let (host, own) = (self.field("host"), self.own_host.as_str());
        Fetch::of("POST", |name| self.field(name))
            .is_from_elsewhere(|origin| origin == own || Some(origin) == host)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Sets the cookie that the browser's next form needs.
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
        // With the path of our pages, browsers send the cookie to nothing else on this host,
        // whatever the port. Over TLS, the prefix in the name does the same for other hosts, and
        // dictates the path.
        let place = if self.secure { "Path=/; Secure" } else { "Path=/oauth" };
        let name = which.name(self.secure);
        let text = format!("{name}={value}; {place}; HttpOnly; SameSite=Lax; Max-Age={life_s}");
        if let Ok(text) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::SET_COOKIE, text);
        }
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value)?;
    (!value.is_empty() && value.len() <= COOKIE_BYTES_MAX).then(|| value.to_owned())
}

/// Returns the page to visit after signing in. Only our own pages are allowed, so that nobody can
/// lead a person elsewhere. Paths are compared as a whole: no dots, doubled slashes or encoded
/// characters remain that a browser could read as another path.
pub(super) fn safe_next(next: Option<&str>) -> &str {
    const PAGES: [&str; 3] = ["/oauth/authorize", "/oauth/device", "/oauth/join"];
    let is_ours = |next: &str| PAGES.contains(&next.split('?').next().unwrap_or_default());
    next.filter(|next| is_ours(next) && next.bytes().all(is_plain)).unwrap_or("/oauth/sign-in")
}

/// Returns whether a character is safe in an address within a header. `;` would end a cookie, and
/// none of our addresses has a `#`.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#' | b';' | b',' | b'"')
}

/// Redirects to the sign-in page, which then leads back.
pub(super) fn sign_in_first(next: &str) -> Response {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    page::see_other(&format!("/oauth/sign-in?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_way_to_workloads_knows_our_cookies() {
        let rest = [Cookie::Outside, Cookie::Next, Cookie::Known];
        for cookie in [Cookie::Session, Cookie::Form].into_iter().chain(rest) {
            for secure in [false, true] {
                assert!(types::browser::is_own_cookie(cookie.name(secure).as_bytes()));
            }
        }
    }

    #[test]
    fn nobody_is_led_elsewhere_after_signing_in() {
        assert_eq!(safe_next(Some("/oauth/device?user_code=X")), "/oauth/device?user_code=X");
        for next in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/oauth/../../evil",
            "/oauth/device/../../-/p.preview/",
            "/oauth/device/%2e%2e/%2e%2e/-/p.preview/",
            "/oauth/device/",
            "/oauth/deviceful",
            "/oauth//device",
            "/oauth/%64evice",
            "/oauth/device#/../..",
            "",
            "/oauth/authorize?\r\nX: y",
            "/oauth/device\\x",
        ] {
            assert_eq!(safe_next(Some(next)), "/oauth/sign-in", "{next}");
        }
    }

    proptest! {
        #[test]
        fn any_next_leads_to_a_page_of_ours(next in "(/oauth/(authorize|device|join)[?/]?)?([./\\\\#?%]|%2[eEfF]|-/p.preview|.){0,12}") {
            // As a browser would read it.
            let base = url::Url::parse("http://127.0.0.1:8700/oauth/sign-in").unwrap();
            let read = base.join(safe_next(Some(&next))).unwrap();
            prop_assert_eq!(read.origin(), base.origin());
            let ours = ["/oauth/sign-in", "/oauth/authorize", "/oauth/device", "/oauth/join"];
            prop_assert!(ours.contains(&read.path()), "{}", read);
        }
    }
}
