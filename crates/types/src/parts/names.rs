//! Checks of names that other systems define: variables, hosts, headers, paths, addresses.

use super::TextMap;
use super::addresses::is_public;
use super::limits::{FILE_NAME_MAX, PATH_MAX, URL_MAX};
use crate::Problems;

/// Checks for a host name in lower case with at least two labels.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_dns_label)
}

pub fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns true for whatever programs may take for an IP address. That is any host whose last label
/// begins with a digit, which no top-level domain does.
pub fn is_ip_like(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or(text);
    text.contains(':') || last.starts_with(|first: char| first.is_ascii_digit())
}

/// Checks for a name that a shell can set: letters, digits and `_`, not starting with a digit.
pub fn is_variable(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What [`is_absolute_path`] asks for.
pub const ABSOLUTE_PATH: &str = "must be an absolute path of at most 1024 bytes without `..` and \
    control characters, each name in it of at most 255 bytes";
const _: () = assert!(PATH_MAX == 1024 && FILE_NAME_MAX == 255);

/// Checks for an absolute path that can be one of a file system.
pub fn is_absolute_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= PATH_MAX
        && !text.chars().any(char::is_control)
        && text.split('/').all(|step| step != ".." && step.len() <= FILE_NAME_MAX)
}

/// Returns true for an absolute `http` or `https` address. Whether it may be called is checked when
/// it is called.
pub fn is_web_address(text: &str) -> bool {
    let parsed = (text.len() <= URL_MAX).then(|| url::Url::parse(text).ok()).flatten();
    parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Checks that users may have this server call an address, as far as its text tells: whether a name
/// leads inside is only seen when it is resolved. The error is the broken rule.
pub fn check_callable(text: &str) -> Result<(), &'static str> {
    if !is_web_address(text) {
        return Err("must be an http or https address");
    }
    let Ok(url) = url::Url::parse(text) else { return Err("must be an http or https address") };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or a password");
    }
    // The parser has understood every notation of an IPv4 address, such as `0x7f.1`.
    let inside = match url.host() {
        Some(url::Host::Ipv4(address)) => !is_public(address.into()),
        Some(url::Host::Ipv6(address)) => !is_public(address.into()),
        Some(url::Host::Domain(name)) => {
            name.trim_end_matches('.').eq_ignore_ascii_case("localhost")
        }
        None => true,
    };
    if inside { Err("must not lead to an address that is not on the internet") } else { Ok(()) }
}

/// Returns the host of an address that the server calls. Another host is another receiver, which
/// must not learn what an earlier one trusts.
pub fn receiver(address: &str) -> Option<String> {
    url::Url::parse(address).ok()?.host_str().map(str::to_owned)
}

/// Checks for `owner/repo`, as code hosts write it.
pub fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        (1..=100).contains(&part.len())
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name))
}

/// Checks that header fields can be written into a request without turning into several.
pub fn check_headers(headers: Option<&TextMap>, at: &str, problems: &mut Problems) {
    for (name, value) in headers.into_iter().flatten() {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            problems.add(at, "has a header name with characters that no header name may have");
        } else if value.chars().any(|letter| letter.is_control() && letter != '\t') {
            problems.add(
                format!("{at}.{name}"),
                "must not hold line breaks or other control characters",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_inside_is_not_callable_however_it_is_written() {
        let refused = "ftp://a.example http://u@a.example http://u:p@a.example http://127.0.0.1:8080/x http://2130706433/ \
            http://0x7f.1/ http://0177.0.0.1 http://127.1 http://10.0.0.1 http://169.254.169.254/latest http://[::1]/ \
            http://[::ffff:10.0.0.1] http://[fd00::1]:80 http://localhost http://LOCALHOST./ http://[64:ff9b::a00:1] \
            http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/ https:/\t/10.0.0.1";
        for address in refused.split(' ').filter(|address| !address.is_empty()) {
            assert!(check_callable(address).is_err(), "{address}");
        }
        for address in [
            "https://a.example",
            "http://a.example:8443/x?y#z",
            "https://1.1.1.1/",
            "http://[2606:4700::1]:9/",
        ] {
            assert_eq!(check_callable(address), Ok(()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_way_to_write_an_inside_address_is_refused(last in 0..=255_u8, form in 0..5_u8, port: u16) {
            let number = 0x0a00_0000 + u32::from(last);
            let host = match form {
                0 => format!("10.0.0.{last}"),
                1 => number.to_string(),
                2 => format!("{number:#x}"),
                3 => format!("10.{last}"),
                _ => format!("[::ffff:10.0.0.{last}]"),
            };
            let address = format!("http://{host}:{port}/");
            prop_assert!(check_callable(&address).is_err());
        }

        #[test]
        fn no_address_is_too_odd(text in "(https?://)?\\PC{0,40}") {
            let _ = check_callable(&text);
        }
    }

    #[test]
    fn names_of_other_systems_are_known() {
        assert!(
            is_dns_name("a.example.com")
                && !is_dns_name("localhost")
                && !is_dns_name("A.example.com")
        );
        assert!(!is_dns_name("a..b") && !is_dns_name("-a.b") && !is_dns_name("*.a.b"));
        assert!(
            is_variable("_A1") && !is_variable("1A") && !is_variable("A-B") && !is_variable("")
        );
        assert!(
            is_absolute_path("/a/..b") && !is_absolute_path("a") && !is_absolute_path("/a/../b")
        );
        let name = "ä".repeat(FILE_NAME_MAX / 2);
        assert!(
            is_absolute_path(&format!("/{name}a/b")) && !is_absolute_path(&format!("/{name}aa"))
        );
        assert!(!is_absolute_path("/a\u{9b}") && !is_absolute_path(&"/a".repeat(PATH_MAX)));
        assert!(
            is_web_address("https://a.example/x?y")
                && !is_web_address("ftp://a")
                && !is_web_address("https://")
        );
        assert!(
            is_repository("me/my.repo")
                && !is_repository("me")
                && !is_repository("a/b/c")
                && !is_repository("a/..")
        );
    }
}
