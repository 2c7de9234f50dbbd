//! Notices connections that lead back to this installation, whatever is in between: each request to
//! a provider says through which installations it has come.

use super::ModelProblem;
use crate::headers::ascii;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header for that, which others pass on (RFC 8586).
pub(crate) const THROUGH: HeaderName = HeaderName::from_static("cdn-loop");
/// What the names of installations begin with there. Names of others are not passed on: to their
/// owners it would look as if we were part of their networks.
const PREFIX: &str = "holm-";
/// A longer way is one that never ends.
const WAY_MAX: usize = 8;

/// Returns what a provider is told, or refuses a request that has come through this installation.
pub(crate) fn through(
    headers: &HeaderMap,
    installation: &str,
) -> Result<HeaderValue, ModelProblem> {
    let own = format!("{PREFIX}{installation}");
    let values = headers.get_all(THROUGH).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim);
    let mut way: Vec<&str> = names.filter(|name| name.starts_with(PREFIX)).collect();
    if way.contains(&own.as_str()) || way.len() >= WAY_MAX {
        return Err(ModelProblem::Loop);
    }
    way.push(&own);
    Ok(ascii(&way.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(way: &[&'static str]) -> Option<String> {
        let values = way.iter().map(|one| (THROUGH, HeaderValue::from_static(one)));
        let headers = HeaderMap::from_iter(values);
        through(&headers, "here").ok().map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_request_that_has_been_here_is_known() {
        assert_eq!(come(&[]).as_deref(), Some("holm-here"));
        let others = come(&["cloud; loops=1, holm-a", "holm-b"]);
        assert_eq!(others.as_deref(), Some("holm-a, holm-b, holm-here"));
        assert_eq!(come(&["holm-a,holm-here", "cloud"]), None);
        assert_eq!(come(&["holm-a"; WAY_MAX]), None);
    }
}
