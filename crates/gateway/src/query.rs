//! Reads and shortens queries without ever re-encoding them.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Returns the decoded values of a parameter, skipping those that are not UTF-8.
pub(crate) fn values<'q>(
    query: Option<&'q str>,
    name: &'q str,
) -> impl Iterator<Item = Cow<'q, str>> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(move |(key, _)| *key == name)
        .filter_map(|(_, value)| percent_decode_str(value).decode_utf8().ok())
}

/// Returns the query without the parameters that `drops` names. The others stay the same, byte for
/// byte.
pub(crate) fn without<'q>(query: &'q str, drops: impl Fn(&str) -> bool) -> Cow<'q, str> {
    let dropped = |pair: &&str| drops(pair.split_once('=').map_or(*pair, |(key, _)| key));
    if !query.split('&').any(|pair| dropped(&pair)) {
        return Cow::Borrowed(query);
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !dropped(pair)).collect();
    Cow::Owned(kept.join("&"))
}
