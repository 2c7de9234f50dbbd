//! Filters cookies on their way through. The server's own cookies never reach a workload and are
//! never set by one, and a workload's cookies apply only where it answers.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use types::browser::{COOKIE_PREFIX, is_own_cookie};

/// Removes the server's own cookies, and joins the fields into one: HTTP/2 may split them, but
/// HTTP/1.1 must not.
pub(crate) fn to_workload(headers: &mut HeaderMap) {
    let all: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let may_hold_own = |value: &&[u8]| {
        value
            .windows(COOKIE_PREFIX.len())
            .any(|window| window.eq_ignore_ascii_case(COOKIE_PREFIX.as_bytes()))
    };
    if all.len() < 2 && !all.iter().any(may_hold_own) {
        return;
    }
    let cookies =
        all.iter().flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let kept: Vec<&[u8]> =
        cookies.filter(|cookie| !cookie.is_empty() && !is_own_cookie(name(cookie))).collect();
    let joined = HeaderValue::from_bytes(&kept.join(&b"; "[..]));
    headers.remove(COOKIE);
    if let Some(joined) = joined.ok().filter(|joined| !joined.is_empty()) {
        headers.insert(COOKIE, joined);
    }
}

/// Returns the decoded values of cookies with these names, skipping those that are not UTF-8.
pub(crate) fn values<'r>(
    headers: &'r HeaderMap,
    names: &'r [&str],
) -> impl Iterator<Item = String> + 'r {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    pairs
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| percent_decode_str(value).decode_utf8().ok().map(Into::into))
}

fn name(cookie: &[u8]) -> &[u8] {
    cookie.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

/// Narrows the cookies that a workload sets. `root` is the path below which it answers if it has no
/// host of its own.
pub(crate) fn from_workload(headers: &mut HeaderMap, root: Option<&str>) {
    if !headers.contains_key(SET_COOKIE) {
        return;
    }
    let kept: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter_map(|set| narrowed(set, root)).collect();
    headers.remove(SET_COOKIE);
    for set in kept {
        headers.append(SET_COOKIE, set);
    }
}

/// Restricts a cookie to its own host, and on a shared host to its own path. `None` means it must
/// not be set.
fn narrowed(set: &HeaderValue, root: Option<&str>) -> Option<HeaderValue> {
    let mut parts = set.as_bytes().split(|byte| *byte == b';');
    let pair = parts.next()?;
    let name = if pair.contains(&b'=') { name(pair) } else { b"" };
    // Browsers send a cookie without a name as its bare value, which could look like any cookie.
    if name.is_empty() || is_own_cookie(name) {
        return None;
    }
    let (mut text, mut path) = (pair.to_vec(), None);
    for attribute in parts {
        let (key, value) = attribute
            .split_at(attribute.iter().position(|byte| *byte == b'=').unwrap_or(attribute.len()));
        let key = key.trim_ascii();
        if key.eq_ignore_ascii_case(b"path") && root.is_some() {
            path =
                Some(value.trim_ascii_start().strip_prefix(b"=").unwrap_or_default().trim_ascii());
        } else if !key.eq_ignore_ascii_case(b"domain") {
            text.push(b';');
            text.extend_from_slice(attribute);
        }
    }
    if let Some(root) = root {
        text.extend_from_slice(b"; Path=");
        text.extend_from_slice(&below(root.as_bytes(), path.unwrap_or_default()));
    }
    HeaderValue::from_bytes(&text).ok()
}

/// Returns the path that the workload means, as the browser sees it.
fn below(root: &[u8], path: &[u8]) -> Vec<u8> {
    let is_below =
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    match path {
        _ if is_below => path.to_vec(),
        [b'/', _, ..] => [root, path].concat(),
        _ => root.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(sent: &[&str], wanted: Option<&str>) {
        let mut headers = HeaderMap::new();
        for cookie in sent {
            headers.append(COOKIE, HeaderValue::try_from(*cookie).unwrap());
        }
        to_workload(&mut headers);
        let left: Vec<&str> =
            headers.get_all(COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(left, wanted.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn own_cookies_stay_here() {
        check(&["a=b; holm_session=s; c=d"], Some("a=b; c=d"));
        check(&["__Host-holm_session=s"], None);
        check(&["holm_form=1;holm_next=/; \tHOLM_preview = x"], None);
        check(&["a=1", "holm_session=s", "b=2"], Some("a=1; b=2"));
        check(&["a=holm_session"], Some("a=holm_session"));
        check(&["odd;=x;a=b=c"], Some("odd;=x;a=b=c"));
    }

    #[track_caller]
    fn sets(set: &str, root: Option<&str>, wanted: Option<&str>) {
        let kept = narrowed(&HeaderValue::try_from(set).unwrap(), root);
        assert_eq!(kept.as_ref().map(|value| value.to_str().unwrap()), wanted);
    }

    #[test]
    fn workloads_set_cookies_for_themselves() {
        sets("a=b; Path=/x; Secure", None, Some("a=b; Path=/x; Secure"));
        sets("a=b; domain=holm.test; Max-Age=1; Domain", None, Some("a=b; Max-Age=1"));
        for own in [
            "holm_session=x; Path=/",
            " __Host-holm_session =x; Secure",
            "=holm_session=x",
            "holm_session",
        ] {
            sets(own, None, None);
        }
        let root = Some("/-/p.preview");
        sets("a=b", root, Some("a=b; Path=/-/p.preview"));
        sets("a=b; Path=/; HttpOnly", root, Some("a=b; HttpOnly; Path=/-/p.preview"));
        sets("a=b; path = /x", root, Some("a=b; Path=/-/p.preview/x"));
        sets("a=b; Path=/x; Path=/-/p.preview/y", root, Some("a=b; Path=/-/p.preview/y"));
        sets("a=b; Path=/-/p.previews", root, Some("a=b; Path=/-/p.preview/-/p.previews"));
        sets("a=b; Path=x", root, Some("a=b; Path=/-/p.preview"));
    }

    proptest! {
        #[test]
        fn no_spelling_sets_a_cookie_of_ours_or_for_more_than_its_place(set in "[ -~]{0,12}(holm_session)?[ -~]{0,12}(; ?([Dd]omain|[Pp]ath)[ =]{0,2}[ -~]{0,12}){0,3}") {
            let Ok(sent) = HeaderValue::try_from(&set) else { return Ok(()) };
            let Some(kept) = narrowed(&sent, Some("/r")) else { return Ok(()) };
            let text = kept.to_str().unwrap();
            let mut parts = text.split(';');
            let (name, _) = parts.next().unwrap().split_once('=').unwrap();
            prop_assert!(!name.trim().is_empty() && !is_own_cookie(name.trim().as_bytes()));
            let keys = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(key, value)| (key.trim().to_lowercase(), value));
            let paths: Vec<_> = keys.inspect(|(key, _)| assert_ne!(key, "domain")).filter(|(key, _)| key == "path").collect();
            prop_assert!(paths.len() == 1 && (paths[0].1 == "/r" || paths[0].1.starts_with("/r/")), "{text}");
        }

        #[test]
        fn no_spelling_hands_on_a_cookie_of_ours(sent in "[ -~]{0,10}(; ?(__Host-|__secure-)?[Hh]olm_[a-z]{0,4} ?=[ -~]{0,4}){0,3}") {
            let Ok(value) = HeaderValue::try_from(&sent) else { return Ok(()) };
            let mut headers = HeaderMap::from_iter([(COOKIE, value)]);
            to_workload(&mut headers);
            let left = headers.get(COOKIE).map_or("", |value| value.to_str().unwrap());
            prop_assert!(left.split(';').all(|pair| !is_own_cookie(pair.split('=').next().unwrap().trim().as_bytes())), "{left}");
        }
    }
}
