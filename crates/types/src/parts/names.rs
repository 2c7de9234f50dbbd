//! Names that other systems define: variables, hosts, headers, paths, addresses.

use super::TextMap;
use super::limits::{PATH_MAX, URL_MAX};
use crate::Problems;

/// Lower case, at least two labels, as a host name is written.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_dns_label)
}

pub fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('-') && !text.ends_with('-')
}

/// What a shell can set: letters, digits and `_`, not first a digit.
pub fn is_variable(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Absolute, without `..` and without control characters.
pub fn is_absolute_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= PATH_MAX
        && !text.chars().any(char::is_control)
        && text.split('/').all(|step| step != "..")
}

/// Whether the address is an absolute `http` or `https` one. Whether it may be called is asked when it is called.
pub fn is_web_address(text: &str) -> bool {
    let parsed = (text.len() <= URL_MAX).then(|| url::Url::parse(text).ok()).flatten();
    parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// `owner/repo`, as code hosts write it.
pub fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        (1..=100).contains(&part.len())
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name))
}

/// Header fields that can be written into a request without becoming two of them.
pub fn check_headers(headers: Option<&TextMap>, at: &str, problems: &mut Problems) {
    for (name, value) in headers.into_iter().flatten() {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            problems.add(at, "has a header name with characters that no header name may have");
        } else if value.chars().any(|letter| letter.is_control() && letter != '\t') {
            problems.add(format!("{at}.{name}"), "must not hold line breaks or other control characters");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_systems_are_known() {
        assert!(is_dns_name("a.example.com") && !is_dns_name("localhost") && !is_dns_name("A.example.com"));
        assert!(!is_dns_name("a..b") && !is_dns_name("-a.b") && !is_dns_name("*.a.b"));
        assert!(is_variable("_A1") && !is_variable("1A") && !is_variable("A-B") && !is_variable(""));
        assert!(is_absolute_path("/a/..b") && !is_absolute_path("a") && !is_absolute_path("/a/../b"));
        assert!(is_web_address("https://a.example/x?y") && !is_web_address("ftp://a") && !is_web_address("https://"));
        assert!(
            is_repository("me/my.repo") && !is_repository("me") && !is_repository("a/b/c") && !is_repository("a/..")
        );
    }
}
