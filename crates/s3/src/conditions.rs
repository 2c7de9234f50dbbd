//! `If-Match` and similar conditions.

use crate::error::Error;
use http::HeaderMap;
use types::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    Any,
    Of(Vec<String>),
}

impl Tags {
    fn read(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        let tags = text.split(',').map(|tag| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag).to_owned()
        });
        Self::Of(tags.collect())
    }

    fn has(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags.iter().any(|tag| tag == etag),
        }
    }
}

/// The conditions that a request puts on the existing object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    matches: Option<Tags>,
    matches_none: Option<Tags>,
    modified_since: Option<Timestamp>,
    unmodified_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    NotModified,
    Failed,
}

impl Conditions {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        Self::with_names(
            headers,
            ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"],
        )
    }

    /// Demands that the object there has this ETag.
    pub(crate) fn matching(etag: &str) -> Self {
        Self { matches: Some(Tags::read(etag)), ..Self::default() }
    }

    /// Reads the conditions on the source of a copy.
    pub(crate) fn of_source(headers: &HeaderMap) -> Self {
        let names = [
            "x-amz-copy-source-if-match",
            "x-amz-copy-source-if-none-match",
            "x-amz-copy-source-if-modified-since",
            "x-amz-copy-source-if-unmodified-since",
        ];
        Self::with_names(headers, names)
    }

    fn with_names(headers: &HeaderMap, names: [&str; 4]) -> Self {
        let [matches, none, modified, unmodified] =
            names.map(|name| headers.get(name).and_then(|value| value.to_str().ok()));
        Self {
            matches: matches.map(Tags::read),
            matches_none: none.map(Tags::read),
            // As HTTP demands, a time that cannot be read is ignored.
            modified_since: modified.and_then(Timestamp::from_http_date),
            unmodified_since: unmodified.and_then(Timestamp::from_http_date),
        }
    }

    /// Checks whether the object with this ETag and time is to be sent.
    pub(crate) fn for_reading(&self, etag: &str, modified_at: Timestamp) -> Verdict {
        let seconds = modified_at.seconds();
        match (&self.matches, self.unmodified_since) {
            (Some(tags), _) if !tags.has(etag) => return Verdict::Failed,
            (None, Some(since)) if seconds > since.seconds() => return Verdict::Failed,
            _ => {}
        }
        match (&self.matches_none, self.modified_since) {
            (Some(tags), _) if tags.has(etag) => Verdict::NotModified,
            (None, Some(since)) if seconds <= since.seconds() => Verdict::NotModified,
            _ => Verdict::Go,
        }
    }

    /// Checks whether the object with this ETag, or the absence of one, may be replaced.
    pub(crate) fn for_writing(&self, etag: Option<&str>) -> Result<(), Error> {
        match (&self.matches, etag) {
            (Some(_), None) => return Err(Error::no_key()),
            (Some(tags), Some(etag)) if !tags.has(etag) => return Err(Error::condition()),
            _ => {}
        }
        match (&self.matches_none, etag) {
            (Some(tags), Some(etag)) if tags.has(etag) => Err(Error::condition()),
            _ => Ok(()),
        }
    }

    /// Returns whether the write must not replace anything.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.matches_none == Some(Tags::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &str)]) -> Conditions {
        let fields = fields
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        Conditions::read(&fields.collect())
    }

    #[test]
    fn conditions_are_weighed_in_the_order_of_http() {
        let modified = Timestamp::from_ms(1_369_353_600_500);
        let (at, before) = ("Fri, 24 May 2013 00:00:00 GMT", "Thu, 23 May 2013 00:00:00 GMT");
        for (fields, verdict) in [
            (&[][..], Verdict::Go),
            (&[("if-match", "\"a\"")], Verdict::Go),
            (&[("if-match", "\"b\", \"a\"")], Verdict::Go),
            (&[("if-match", "*")], Verdict::Go),
            (&[("if-match", "\"b\"")], Verdict::Failed),
            (&[("if-none-match", "a")], Verdict::NotModified),
            (&[("if-none-match", "W/\"a\"")], Verdict::NotModified),
            (&[("if-none-match", "\"b\"")], Verdict::Go),
            (&[("if-modified-since", at)], Verdict::NotModified),
            (&[("if-modified-since", before)], Verdict::Go),
            (&[("if-unmodified-since", at)], Verdict::Go),
            (&[("if-unmodified-since", before)], Verdict::Failed),
            (&[("if-match", "\"a\""), ("if-unmodified-since", before)], Verdict::Go),
            (&[("if-none-match", "\"b\""), ("if-modified-since", at)], Verdict::Go),
        ] {
            assert_eq!(of(fields).for_reading("a", modified), verdict, "{fields:?}");
        }
    }

    #[test]
    fn writes_are_held_to_what_is_there() {
        let exclusive = of(&[("if-none-match", "*")]);
        assert!(exclusive.is_exclusive());
        assert!(exclusive.for_writing(None).is_ok());
        assert!(exclusive.for_writing(Some("a")).is_err());
        let swap = of(&[("if-match", "\"a\"")]);
        assert!(swap.for_writing(Some("a")).is_ok());
        assert!(swap.for_writing(Some("b")).is_err());
        assert!(swap.for_writing(None).is_err());
    }
}
