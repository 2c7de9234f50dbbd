//! Behavior of browsers that the server's own pages and the data plane must judge alike: cookies,
//! which they send to every port of a host, and what they tell about the page that made them send a
//! request.

/// Start of the name of every cookie of the server, after the prefixes that have a meaning to
/// browsers.
pub const COOKIE_PREFIX: &str = "holm_";
const MEANT_FOR_BROWSERS: [&str; 2] = ["__Host-", "__Secure-"];

/// Returns true if a cookie is one of the server's own. All ports of a host share its cookies, so
/// these arrive with requests for workloads; workloads may neither read nor set them.
pub fn is_own_cookie(name: &[u8]) -> bool {
    let plain = MEANT_FOR_BROWSERS.iter().find_map(|prefix| behind(name, prefix)).unwrap_or(name);
    behind(plain, COOKIE_PREFIX).is_some()
}

fn behind<'n>(name: &'n [u8], prefix: &str) -> Option<&'n [u8]> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix.as_bytes()).then_some(rest)
}

/// What a browser tells about a request. Pages cannot set these header fields, and programs that
/// are not browsers leave them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetch<'r> {
    /// `Sec-Fetch-Site`: how the requesting page is related to what it requests. Old browsers do
    /// not send it, nor does any browser on plain HTTP to another machine.
    site: Option<&'r str>,
    /// `Sec-Fetch-Mode` and `Sec-Fetch-Dest`: what the answer is used for.
    mode: Option<&'r str>,
    dest: Option<&'r str>,
    origin: Option<&'r str>,
    accept: Option<&'r str>,
    is_get: bool,
}

impl<'r> Fetch<'r> {
    /// Reads a request. `field` finds a header field by its lower-case name.
    pub fn of(method: &str, field: impl Fn(&'static str) -> Option<&'r str>) -> Self {
        Self {
            site: field("sec-fetch-site"),
            mode: field("sec-fetch-mode"),
            dest: field("sec-fetch-dest"),
            origin: field("origin"),
            accept: field("accept"),
            is_get: matches!(method, "GET" | "HEAD"),
        }
    }

    /// Returns true if a page of another origin made the browser send the request. `is_own`
    /// recognizes the request's own host, including its port. A request that states neither site
    /// nor origin was not sent by a page, or is a plain link or image, which `SameSite` has dealt
    /// with.
    pub fn is_from_elsewhere(&self, is_own: impl Fn(&str) -> bool) -> bool {
        match self.site {
            Some("same-origin" | "none") => false,
            Some(_) => true,
            None => self.origin.is_some_and(|origin| {
                !origin.split_once("://").is_some_and(|(_, host)| is_own(host))
            }),
        }
    }

    /// Returns true if the answer is certain to be a page that fills a window, which the page that
    /// caused the request cannot read.
    pub fn opens_page(&self) -> bool {
        self.is_get
            && self.mode == Some("navigate")
            && self.dest.is_none_or(|dest| dest == "document")
    }

    /// Returns true if the answer most likely fills a window, whose address bar shows the request.
    /// Do not rely on it where a page could gain from pretending: scripts may set `Accept`.
    pub fn wants_page(&self) -> bool {
        let html = || self.accept.is_some_and(|accept| accept.contains("text/html"));
        self.opens_page() || (self.is_get && self.mode.is_none() && html())
    }

    /// Returns true if the answer fills a frame inside a page, which may be of another site.
    pub fn is_framed(&self) -> bool {
        self.dest.is_some_and(|dest| matches!(dest, "iframe" | "frame" | "embed" | "object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cookies_are_known_however_they_are_spelled() {
        for name in ["holm_session", "__Host-holm_session", "__secure-HOLM_x", "Holm_"] {
            assert!(is_own_cookie(name.as_bytes()), "{name}");
        }
        for name in ["", "holm", "session", "__Host-session", "x_holm_session"] {
            assert!(!is_own_cookie(name.as_bytes()), "{name}");
        }
    }

    fn fetch(method: &str, fields: &[(&str, &'static str)]) -> Fetch<'static> {
        Fetch::of(method, |name| {
            fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn a_page_of_another_origin_gives_itself_away() {
        let elsewhere =
            |fields: &[_]| fetch("GET", fields).is_from_elsewhere(|host| host == "holm.test:8701");
        for fields in [
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
            [("origin", "http://holm.test:8700")],
            [("origin", "null")],
            [("origin", "holm.test:8701")],
        ] {
            assert!(elsewhere(&fields), "{fields:?}");
        }
        for fields in [
            [("sec-fetch-site", "same-origin")],
            [("sec-fetch-site", "none")],
            [("origin", "http://holm.test:8701")],
        ] {
            assert!(!elsewhere(&fields), "{fields:?}");
        }
        assert!(!elsewhere(&[]));
    }

    #[test]
    fn a_page_is_opened_by_a_person_only() {
        let navigates = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert!(fetch("GET", &navigates).opens_page() && !fetch("POST", &navigates).opens_page());
        assert!(
            !fetch("GET", &[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")])
                .opens_page()
        );
        assert!(!fetch("GET", &[("sec-fetch-mode", "cors"), ("accept", "text/html")]).opens_page());
        let old = fetch("GET", &[("accept", "text/html,*/*")]);
        assert!(
            old.wants_page()
                && !old.opens_page()
                && !fetch("GET", &[("accept", "*/*")]).wants_page()
        );
    }
}
