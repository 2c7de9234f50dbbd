//! Registry tokens in place of keys, as clients that push and pull expect them: an answer without
//! credentials says where tokens are issued and for what (`WWW-Authenticate: Bearer`), the client
//! asks there with the key as its password, and uses the token from then on.

use super::answers::header_of;
use super::caller::{Caller, Shown, action};
use super::error::Refusal;
use super::path::{self, BASE, Name, Wanted};
use auth::registry_tokens::{Access, Action, LIFE_S};
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde_json::json;
use types::{Scope, Verb};

const REPOSITORY: &str = "repository";
const CATALOG: &str = "registry:catalog:*";
/// How many repositories one token may be requested for: the repository itself, and those whose
/// blobs it mounts.
const SCOPES_MAX: usize = 16;

/// Issues a token for those of the requested actions that the caller is allowed. The others are
/// silently left out, so that strangers learn no names.
pub(super) async fn give(caller: &Caller, parts: &Parts) -> Result<Response, Refusal> {
    // A limited token must not be exchanged for one with more rights.
    let Shown::Credential(credential) = &caller.shown else { return Err(Refusal::beyond_token()) };
    let mut access = Vec::new();
    for scope in scopes(parts)? {
        access.extend(granted(caller, &scope));
    }
    let given = caller.app.auth.registry_token(&caller.identity, credential, access).await?;
    let body = json!({
        // Clients read one of the two.
        "token": given.token,
        "access_token": given.token,
        "expires_in": LIFE_S,
        "issued_at": given.issued_at,
    });
    let mut response = Response::new(Body::from(body.to_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns the scopes that a token is requested for: several parameters, or several words in one.
fn scopes(parts: &Parts) -> Result<Vec<String>, Refusal> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let asked = form_urlencoded::parse(query).filter(|(name, _)| name == "scope");
    let mut scopes: Vec<String> = asked
        .flat_map(|(_, value)| value.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .filter(|scope| !scope.is_empty())
        .collect();
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.len() > SCOPES_MAX {
        let why = format!("a token is for at most {SCOPES_MAX} repositories");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "DENIED", why));
    }
    Ok(scopes)
}

/// Returns the part of a scope that the caller is allowed now.
fn granted(caller: &Caller, scope: &str) -> Option<Access> {
    if scope == CATALOG {
        return Some(Access::Catalog);
    }
    let (name, wanted) = wanted(scope)?;
    let mut place = None;
    let mut actions = Vec::new();
    for action in wanted {
        if let Ok(member) = caller.member(&name.workspace, needed(action)) {
            place = Some(member.workspace);
            actions.push(action);
        }
    }
    Some(Access::Repository { name: name.to_string(), workspace: place?, actions })
}

/// Parses `repository:{name}:{actions}`.
fn wanted(scope: &str) -> Option<(Name, Vec<Action>)> {
    let (kind, rest) = scope.split_once(':')?;
    let (name, actions) = rest.rsplit_once(':')?;
    // Docker writes `repository(plugin)` for plugins, which we do not have.
    let name = Name::parse(name).filter(|_| kind == REPOSITORY)?;
    let mut wanted = Vec::new();
    for action in actions.split(',') {
        match action {
            "pull" => wanted.push(Action::Pull),
            "push" => wanted.push(Action::Push),
            "delete" => wanted.push(Action::Delete),
            "*" => wanted.extend([Action::Pull, Action::Push, Action::Delete]),
            _ => {}
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    Some((name, wanted))
}

fn needed(action: Action) -> &'static [Scope] {
    match action {
        Action::Pull => &[Scope::Images(Verb::Get)],
        Action::Push => &[Scope::Images(Verb::Create)],
        Action::Delete => &[Scope::Images(Verb::Delete)],
    }
}

/// Tells a caller without sufficient credentials where to get a token, and for what.
pub(super) fn challenge(
    public_url: &str,
    (method, uri): (&Method, &Uri),
    fault: Option<&str>,
) -> HeaderValue {
    let wanted = uri.path().strip_prefix(BASE).and_then(path::parse);
    if wanted == Some(Wanted::Token) {
        return HeaderValue::from_static(r#"Basic realm="holm", charset="UTF-8""#);
    }
    let host = public_url.parse::<Uri>().ok().and_then(|url| url.authority().cloned());
    let service = host.as_ref().map_or("holm", Authority::as_str);
    let mut text = format!(r#"Bearer realm="{public_url}{BASE}token",service="{service}""#);
    if let Some(scope) = wanted.and_then(|wanted| scope_of(&wanted, method)) {
        text += &format!(r#",scope="{scope}""#);
    }
    if let Some(fault) = fault {
        text += &format!(r#",error="{fault}""#);
    }
    header_of(&text)
}

fn scope_of(wanted: &Wanted, method: &Method) -> Option<String> {
    let (name, act) = match wanted {
        Wanted::Base | Wanted::Token => return None,
        Wanted::Catalog => return Some(CATALOG.to_owned()),
        Wanted::In(name, act) => (name.to_string(), act),
    };
    // Other characters that a path may contain have no place between quotes.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let actions = match action(path::scopes(method, act).ok()?) {
        Action::Pull => "pull",
        // A client that pushes first checks what exists.
        Action::Push => "pull,push",
        Action::Delete => "delete",
    };
    name.bytes().all(plain).then(|| format!("{REPOSITORY}:{name}:{actions}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(scope: &str, expected: Option<(&str, &[Action])>) {
        let found = wanted(scope).map(|(name, actions)| (name.to_string(), actions));
        assert_eq!(found, expected.map(|(name, actions)| (name.to_owned(), actions.to_vec())));
    }

    #[test]
    fn scopes_name_repositories_and_actions() {
        use Action::{Delete, Pull, Push};
        check("repository:main/job/a:push,pull", Some(("main/job/a", &[Pull, Push])));
        check("repository:main/a:pull,pull", Some(("main/a", &[Pull])));
        check("repository:main/job/a:*", Some(("main/job/a", &[Pull, Push, Delete])));
        check("repository:main/job/a:fly", Some(("main/job/a", &[])));
        check("repository:a:pull", None);
        check("repository:main/job/a", None);
        check("registry:catalog:*", None);
        check("repository(plugin):main/a:pull", None);
    }

    #[test]
    fn a_challenge_says_where_and_for_what() {
        let challenge = |method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let uri = path.parse().unwrap();
            let value = challenge("https://holm.example:8", (&method, &uri), None);
            value.to_str().unwrap().to_owned()
        };
        let plain = r#"Bearer realm="https://holm.example:8/v2/token",service="holm.example:8""#;
        assert_eq!(challenge("GET", "/v2/"), plain);
        let scope = |text: &str| format!(r#"{plain},scope="{text}""#);
        assert_eq!(challenge("GET", "/v2/m/job/a/tags/list"), scope("repository:m/job/a:pull"));
        let uploads = "/v2/m/job/a/blobs/uploads/";
        assert_eq!(challenge("POST", uploads), scope("repository:m/job/a:pull,push"));
        assert_eq!(challenge("DELETE", "/v2/m/a/manifests/v1"), scope("repository:m/a:delete"));
        assert_eq!(challenge("GET", "/v2/_catalog"), scope("registry:catalog:*"));
        assert!(challenge("GET", "/v2/token").starts_with("Basic realm="));
        assert_eq!(challenge("GET", "/v2/m/a%22b/tags/list"), plain, "no quotes in quotes");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_name_has_a_quote(text in "(repository:)?[a-z/:,*%\"]{0,30}", method in "GET|PUT|POST|DELETE|PATCH") {
            let _ = wanted(&text);
            if let Ok(uri) = format!("/v2/{text}/tags/list").parse::<Uri>() {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let value = challenge("http://h", (&method, &uri), Some("invalid_token"));
                let quotes = value.as_bytes().iter().filter(|byte| **byte == b'"').count();
                prop_assert!([6, 8].contains(&quotes), "{value:?}");
            }
        }
    }
}
