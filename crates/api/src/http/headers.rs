//! Header names of the interface. The neutral names and those of the published clients mean the
//! same.

use crate::http::error::Error;
use crate::http::malformed::Malformed;
use http::HeaderMap;
use types::ApiVersion;

pub(crate) const AUTHORIZATION: [&str; 3] =
    ["x-blaxel-authorization", "x-service-authorization", "authorization"];
pub(crate) const WORKSPACE: [&str; 2] = ["x-blaxel-workspace", "x-service-workspace"];
const VERSION: [&str; 2] = ["blaxel-version", "service-version"];
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

fn first<'h>(headers: &'h HeaderMap, names: &[&str]) -> Option<&'h http::HeaderValue> {
    names.iter().find_map(|name| headers.get(*name))
}

/// Returns the bearer token. The `X-` forms take precedence, because provider SDKs leave a dummy
/// value in `Authorization`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = first(headers, &AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

pub(crate) fn workspace(headers: &HeaderMap) -> Option<&str> {
    first(headers, &WORKSPACE)?.to_str().ok().filter(|name| !name.is_empty())
}

/// Returns the version of an object that a caller has read. `*` means any version.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<i64>, Error> {
    let Some(value) = headers.get(http::header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .and_then(|text| text.parse().ok());
    let rule = || Error::from(Malformed::IfMatch);
    version.map(Some).ok_or_else(rule)
}

pub(crate) fn version(headers: &HeaderMap) -> Result<ApiVersion, Error> {
    match first(headers, &VERSION) {
        None => Ok(ApiVersion::default()),
        Some(value) => Ok(ApiVersion::parse(value.to_str().unwrap_or("?"))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefixed_header_wins_over_a_dummy() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer replaced".parse().unwrap());
        assert_eq!(bearer(&headers), Some("replaced"));
        headers.insert("x-service-authorization", "bearer real".parse().unwrap());
        assert_eq!(bearer(&headers), Some("real"));
    }
}
