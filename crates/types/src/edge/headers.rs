//! Headers that previews cannot set, because the edge decides what they say.

/// Set by the edge for the workload, taken by it from the caller, or true of one connection only.
const RESERVED: [&str; 19] = [
    "x-blaxel-subject-id",
    "x-blaxel-subject-type",
    "x-blaxel-auth-method",
    "x-blaxel-authorization",
    "x-service-authorization",
    "x-blaxel-preview-token",
    "x-blaxel-fallback",
    "x-blaxel-fallback-preview",
    "x-blaxel-fallback-domain",
    "x-blaxel-source",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Removed from every answer: it would also clear what belongs to the server's own name.
const NEVER_ANSWERED: &str = "clear-site-data";

/// Returns whether servers that pass headers on as variables give both the same name, as CGI does
/// for `a_b` and `A-B`.
pub fn are_one(a: &str, b: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}

/// Returns whether no preview can set a header, in any spelling.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| are_one(name, reserved))
}

/// Returns whether no answer of a preview has a header.
pub fn is_never_answered(name: &str) -> bool {
    is_reserved(name) || NEVER_ANSWERED.eq_ignore_ascii_case(name)
}
