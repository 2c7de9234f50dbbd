//! Classifies how a provider failed, by what it answered.

use super::upstream::Broken;
use ::models::dialect::is_too_long;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use std::time::Duration;
use types::Timestamp;
use types::kinds::model::ModelFailure;

/// Words in errors of providers, in lower case.
const FILTERED: [&[u8]; 4] =
    [b"content_filter", b"content_policy", b"responsibleaipolicy", b"moderation_blocked"];

/// Google reports a bad key with status 400.
const BAD_KEY: [&[u8]; 1] = [b"api_key_invalid"];

pub(crate) const fn of_broken(broken: &Broken) -> ModelFailure {
    if broken.is_timeout() { ModelFailure::Timeout } else { ModelFailure::Unreachable }
}

/// Classifies an error by its status. `body` is as much of the answer as was read.
pub(crate) fn of_status(status: StatusCode, body: &[u8]) -> ModelFailure {
    let says = |words: &[&[u8]]| {
        let lower = body.to_ascii_lowercase();
        words.iter().any(|word| memchr::memmem::find(&lower, word).is_some())
    };
    match status.as_u16() {
        400 if says(&BAD_KEY) => ModelFailure::Credentials,
        // Nothing is left of what was paid for.
        402 => ModelFailure::RateLimit,
        401 | 403 if !says(&FILTERED) => ModelFailure::Credentials,
        408 => ModelFailure::Timeout,
        429 => ModelFailure::RateLimit,
        413 => ModelFailure::ContextLength,
        // The request comes back to whoever sends it, as often as it is sent.
        508 => ModelFailure::BadRequest,
        300..=399 | 500.. => ModelFailure::ServerError,
        _ if is_too_long(body) => ModelFailure::ContextLength,
        _ if says(&FILTERED) => ModelFailure::ContentFilter,
        _ => ModelFailure::BadRequest,
    }
}

/// Returns whether the same model may do better at the next try.
pub(crate) const fn may_pass(failure: ModelFailure) -> bool {
    matches!(
        failure,
        ModelFailure::Unreachable | ModelFailure::ServerError | ModelFailure::RateLimit
    )
}

/// Returns whether a provider that refused with this failure may still have done what was asked.
/// After the others nothing was done: it says that the request, or whoever sends it, is not taken.
pub(crate) const fn may_be_done(failure: ModelFailure) -> bool {
    matches!(failure, ModelFailure::ServerError | ModelFailure::Timeout)
}

/// Returns whether a model that fails like this should be left alone.
pub(crate) const fn is_its_own(failure: ModelFailure) -> bool {
    matches!(failure, ModelFailure::Unreachable | ModelFailure::ServerError | ModelFailure::Timeout)
}

/// Returns how long a provider wants to be left alone. Most give seconds, some milliseconds or a
/// date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let ms = text("retry-after-ms").and_then(|ms| ms.trim().parse::<f64>().ok());
    match ms {
        Some(ms) => Duration::try_from_secs_f64(ms / 1000.0).ok(),
        None => types::time::retry_after(text(RETRY_AFTER.as_str())?, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn failures_are_told_apart() {
        let of = |status: u16, body: &str| {
            of_status(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        assert_eq!(of(401, ""), ModelFailure::Credentials);
        assert_eq!(of(429, "{}"), ModelFailure::RateLimit);
        assert_eq!(of(529, ""), ModelFailure::ServerError);
        assert_eq!(of(508, ""), ModelFailure::BadRequest);
        assert_eq!(of(302, ""), ModelFailure::ServerError);
        assert_eq!(of(400, r#"{"code":"context_length_exceeded"}"#), ModelFailure::ContextLength);
        assert_eq!(of(400, "Prompt is too long: 1"), ModelFailure::ContextLength);
        assert_eq!(of(400, r#"{"code":"content_filter"}"#), ModelFailure::ContentFilter);
        assert_eq!(of(404, ""), ModelFailure::BadRequest);
    }

    #[test]
    fn waits_are_read_in_seconds_and_milliseconds() {
        let wait = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            retry_after(&headers, Timestamp::from_ms(1_369_353_599_000))
        };
        assert_eq!(
            wait("retry-after", "Fri, 24 May 2013 00:00:00 GMT"),
            Some(Duration::from_secs(1))
        );
        assert_eq!(wait("retry-after", "Thu, 23 May 2013 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        for bad in ["-1", "soon", "1e300", "NaN"] {
            assert_eq!(wait("retry-after", bad), None, "{bad}");
        }
    }
}
