//! Addresses of a provider: its base, and paths below that. No path leads out of the base.

use super::errors::BadProvider;
use http::Uri;
use http::uri::{Authority, Scheme};
use std::fmt;

/// Where one call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub url: Uri,
    /// An IPv6 address is stored without its brackets.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

/// The address below which all of a provider's paths are.
pub(super) struct Base {
    scheme: Scheme,
    authority: Authority,
    segments: Vec<String>,
    /// Query parameters of every call.
    query: Vec<String>,
}

/// Leaves out the query, which may hold a key.
impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.authority, self.segments.join("/"))
    }
}

impl Base {
    /// Parses an address. The error completes "an address that …".
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = match text.contains("://") {
            true => text.to_owned(),
            false => format!("https://{text}"),
        };
        let text = text.split('#').next().unwrap_or_default();
        let uri: Uri = text.parse().map_err(|_| "is no address")?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.ok_or("has no scheme")?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err("is neither http nor https");
        }
        let authority = parts.authority.ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a name of a user");
        }
        if authority.host().is_empty() {
            return Err("has no host");
        }
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err("has no number for its port");
        }
        let below = parts.path_and_query;
        let path = below.as_ref().map_or("", |below| below.path()).trim_end_matches('/');
        check(path)?;
        let segments = path.split('/').skip(1).map(str::to_owned).collect();
        let query = below.as_ref().and_then(|below| below.query()).unwrap_or_default();
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        Ok(Self { scheme, authority, segments, query })
    }

    /// Cuts the path between two parts, if it has one of these pairs. Returns the second part.
    pub(super) fn cut_behind<'p>(&mut self, pairs: &'p [String]) -> Option<&'p str> {
        let (at, cut) = pairs.iter().find_map(|pair| {
            let (kept, cut) = pair.split_once('/')?;
            let at = self.segments.windows(2).position(|two| two[0] == kept && two[1] == cut)?;
            Some((at, cut))
        })?;
        self.segments.truncate(at + 1);
        Some(cut)
    }

    /// Takes a parameter out of the query of every call.
    pub(super) fn take(&mut self, wanted: &str) -> Option<String> {
        let at = self.query.iter().position(|pair| name(pair) == wanted)?;
        let pair = self.query.remove(at);
        form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
    }

    /// Returns an address below the base. If the path begins with what the base ends with, such as
    /// `/v1` or a deployment, that is not repeated. `defaults` are query parameters to add unless
    /// they are set.
    pub(super) fn target(
        &self,
        path: &str,
        query: Option<&str>,
        defaults: &[&str],
    ) -> Result<Target, BadProvider> {
        check(path).map_err(BadProvider::BadPath)?;
        let below: Vec<&str> = path.split('/').skip(1).collect();
        let most = self.segments.len().min(below.len());
        let ends_with = |count: &usize| {
            self.segments[self.segments.len() - count..].iter().eq(&below[..*count])
        };
        let twice = (1..=most).rev().find(ends_with).unwrap_or(0);
        let mut text = String::with_capacity(path.len() + 64);
        let parts = self.segments.iter().map(String::as_str).chain(below[twice..].iter().copied());
        for part in parts {
            text.push('/');
            text.push_str(part);
        }
        if text.is_empty() {
            text.push('/');
        }
        self.add_query(&mut text, query, defaults);
        let bad = |_| BadProvider::BadPath("has characters that no address has");
        let url = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(text)
            .build()
            .map_err(bad)?;
        let is_tls = self.scheme == Scheme::HTTPS;
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = self.authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Target { url, host, port, is_tls })
    }

    /// Adds the caller's parameters as they were sent, but without credentials; then those of the
    /// base and the defaults that are not set yet.
    fn add_query(&self, text: &mut String, query: Option<&str>, defaults: &[&str]) {
        let mut named: Vec<String> = Vec::new();
        let callers = query.unwrap_or_default().split('&').filter(|pair| is_passed(pair));
        let mut separator = '?';
        let mut add = |pair: &str| {
            text.push(separator);
            text.push_str(pair);
            separator = '&';
        };
        for pair in callers {
            named.push(name(pair));
            add(pair);
        }
        for pair in self.query.iter().map(String::as_str).chain(defaults.iter().copied()) {
            if !named.contains(&name(pair)) {
                named.push(name(pair));
                add(pair);
            }
        }
    }
}

fn name(pair: &str) -> String {
    let name = form_urlencoded::parse(pair.as_bytes()).next();
    name.map_or_else(String::new, |(name, _)| name.into_owned())
}

/// Returns whether a parameter of the caller is passed on. Credentials of callers are meant for us
/// and not for the provider. Parameters that begin with a dollar set headers and methods at some of
/// Google's services.
fn is_passed(pair: &str) -> bool {
    const CREDENTIALS: [&str; 9] = [
        "key",
        "apikey",
        "api_key",
        "api-key",
        "access_token",
        "oauth_token",
        "authorization",
        "subscription-key",
        "token",
    ];
    let name = name(pair).to_ascii_lowercase();
    !pair.is_empty()
        && !CREDENTIALS.contains(&name.as_str())
        && !name.starts_with('$')
        && !hides_usage(&name, pair)
}

/// Returns whether the parameter makes Google's services leave the usage out of an answer, or write
/// it in another form.
fn hides_usage(name: &str, pair: &str) -> bool {
    let value = pair.split_once('=').map_or("", |(_, value)| value);
    match name {
        "fields" | "callback" => true,
        "alt" => !matches!(value, "json" | "sse" | "media"),
        _ => false,
    }
}

/// Checks that a path stays below where it begins, however a server reads it. The error completes
/// "a path that …".
pub(super) fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Ok(());
    }
    let Some(below) = path.strip_prefix('/') else { return Err("does not begin with a slash") };
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || b"\\?#\"<>^`{|}".contains(&byte)) {
        return Err("has characters that no path has");
    }
    let folded = path.to_ascii_lowercase();
    // An encoded percent sign could hide one of the others.
    if ["%2f", "%5c", "%2e", "%25", "%00"].iter().any(|hidden| folded.contains(hidden)) {
        return Err("has an encoded slash, dot, per cent sign or zero");
    }
    let last = below.split('/').count() - 1;
    for (at, part) in below.split('/').enumerate() {
        if part.is_empty() && at != last {
            return Err("has an empty part");
        }
        // Some servers cut off what follows a semicolon.
        if matches!(part.split(';').next(), Some("." | "..")) {
            return Err("leads up");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(base: &str, path: &str, query: Option<&str>, defaults: &[&str]) -> String {
        Base::parse(base).unwrap().target(path, query, defaults).unwrap().url.to_string()
    }

    #[test]
    fn what_the_base_ends_with_is_not_said_twice() {
        let chat = "/v1/chat/completions";
        assert_eq!(url("http://h:1", chat, None, &[]), "http://h:1/v1/chat/completions");
        assert_eq!(url("http://h:1/v1/", chat, None, &[]), "http://h:1/v1/chat/completions");
        assert_eq!(url("h/a/v1", chat, None, &[]), "https://h/a/v1/chat/completions");
        assert_eq!(url("https://h/a", chat, None, &[]), "https://h/a/v1/chat/completions");
        let whole = "https://h/openai/deployments/d/chat/completions?api-version=2";
        let path = "/openai/deployments/d/chat/completions";
        assert_eq!(url(whole, path, None, &["api-version=1"]), whole);
    }

    #[test]
    fn credentials_in_a_query_are_dropped_however_they_are_written() {
        let asked =
            "a=1&key=s&%6bey=s&API_KEY=s&&b=%20x&$httpHeaders=Authorization:x&access_token=s";
        assert_eq!(
            url("http://h", "/p", Some(asked), &["a=2", "c=3"]),
            "http://h/p?a=1&b=%20x&c=3"
        );
    }

    #[test]
    fn no_query_takes_what_was_used_out_of_an_answer() {
        let asked = "fields=candidates&alt=sse&%61lt=proto&callback=f&x=1";
        assert_eq!(url("http://h", "/p", Some(asked), &[]), "http://h/p?alt=sse&x=1");
        assert_eq!(url("http://h", "/p", Some("alt=media"), &[]), "http://h/p?alt=media");
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for bad in [
            "ftp://h",
            "http://u:p@h",
            "http://",
            "https://h/a/../b",
            "file:///etc/passwd",
            "http://h:x",
            "https://u@h",
            "http://h/%2e%2e/",
            "https://h//a",
            "",
        ] {
            assert!(Base::parse(bad).is_err(), "{bad}");
        }
        let base = Base::parse("http://[::1]:80/x").unwrap();
        let target = base.target("/p", None, &[]).unwrap();
        assert_eq!((target.host.as_str(), target.port, target.is_tls), ("::1", 80, false));
    }

    proptest! {
        /// Whatever a caller sends, the address stays below the base and at its host.
        #[test]
        fn no_path_leaves_the_base(path in r"[a-z./%2eEfF5cC;\\@:?#\x00-\x20é]{0,24}", query in r"[ -~]{0,12}") {
            let base = Base::parse("https://host.test/a/b").unwrap();
            if let Ok(target) = base.target(&path, Some(&query), &[]) {
                prop_assert_eq!(target.url.authority().unwrap().as_str(), "host.test");
                prop_assert!(target.url.path().starts_with("/a/b"));
                let parsed = percent_encoding::percent_decode_str(target.url.path()).decode_utf8_lossy();
                prop_assert!(!parsed.split(['/', '\\']).any(|part| part == ".." || part == "."));
            }
        }
    }
}
