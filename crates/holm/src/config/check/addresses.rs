//! Checks of web addresses and names of hosts.

use crate::config::error::{Wrong, wrong};

pub(super) fn web_address(key: &'static str, text: &str) -> Result<(), Wrong> {
    match reqwest::Url::parse(text) {
        Ok(url)
            if matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none() =>
        {
            Ok(())
        }
        _ => wrong(
            key,
            format!("is `{text}`: it must be an address such as https://holm.example.org"),
        ),
    }
}

/// Checks the address of a server as it begins other addresses, and as browsers know its origin.
pub(super) fn origin(key: &'static str, text: &str) -> Result<(), Wrong> {
    web_address(key, text)?;
    let Ok(url) = reqwest::Url::parse(text) else { return Ok(()) };
    if url.path() != "/" || !url.username().is_empty() || url.password().is_some() {
        return wrong(key, "must have no path, user or password: https://holm.example.org");
    }
    match url.host_str().is_some_and(is_host) {
        true => Ok(()),
        false => wrong(
            key,
            format!("is `{text}`: name one host, without `*`, such as https://holm.example.org"),
        ),
    }
}

/// True for a host name or an IP address without scheme, port, path or `*`, which is what hosts are
/// compared with.
pub(super) fn is_host(text: &str) -> bool {
    let has_more = |c: char| matches!(c, '/' | '?' | '#' | '@' | '*') || c.is_whitespace();
    let is_address = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    is_address || (!text.is_empty() && !text.contains(has_more) && !text.contains(':'))
}
