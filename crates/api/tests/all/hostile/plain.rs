//! Addresses outside the table: OAuth, webhooks, triggers and pages.

use super::stage::{ABSENT, HOME, HONEST, MARK, NOWHERE, Stage};
use crate::common::{Answer, Cloud};
use http::Method;
use std::collections::BTreeSet;

/// A request by somebody without rights, made once with something of the honest tenant's and once
/// with something invented.
struct Case {
    path: &'static str,
    method: Method,
    kind: &'static str,
    body: &'static str,
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

fn case(method: Method, path: &'static str, kind: &'static str, body: &'static str) -> Case {
    Case { path, method, kind, body }
}

/// In these, `{client}`, `{secret}`, `{token}`, `{email}`, `{name}` and `{workspace}` are filled
/// in.
fn cases() -> Vec<Case> {
    let mut all = oauth();
    all.extend(registry());
    all.extend(buckets());
    all.extend(others());
    all
}

fn buckets() -> Vec<Case> {
    let (bucket, object) = ("/s3/{workspace}", "/s3/{workspace}/{name}");
    let of_objects = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    let mut all = vec![
        case(Method::GET, "/s3/", JSON, ""),
        case(Method::GET, bucket, JSON, ""),
        case(Method::HEAD, bucket, JSON, ""),
        case(Method::POST, bucket, JSON, "<Delete/>"),
    ];
    all.extend(of_objects.map(|method| case(method, object, JSON, "")));
    all
}

fn oauth() -> Vec<Case> {
    let (get, post, delete) = (|| Method::GET, || Method::POST, || Method::DELETE);
    let grant = "grant_type=client_credentials&client_id={client}&client_secret=wrong";
    let code = "grant_type=authorization_code&code={token}&client_id={client}&redirect_uri=https://app.example/cb";
    vec![
        case(post(), "/oauth/token", FORM, grant),
        case(post(), "/oauth/token", FORM, code),
        case(
            post(),
            "/oauth/token",
            FORM,
            "grant_type=refresh_token&refresh_token={token}&client_id={client}",
        ),
        case(post(), "/oauth/revoke", FORM, "token={token}&client_id={client}&client_secret=wrong"),
        case(post(), "/oauth/device/code", FORM, "client_id={client}"),
        case(post(), "/oauth/device_authorization", FORM, "client_id={client}"),
        case(post(), "/login/device", FORM, "client_id={client}"),
        case(get(), "/oauth/userinfo", FORM, ""),
        case(post(), "/oauth/userinfo", FORM, ""),
        case(get(), "/oauth/jwks", FORM, ""),
        case(get(), "/.well-known/openid-configuration", FORM, ""),
        case(get(), "/.well-known/oauth-authorization-server", FORM, ""),
        case(get(), "/oauth/style.css", FORM, ""),
        case(get(), "/oauth/authorize?client_id={client}&response_type=code", FORM, ""),
        case(
            post(),
            "/oauth/authorize",
            FORM,
            "client_id={client}&response_type=code&proof=made-up",
        ),
        case(get(), "/oauth/sign-in?next=/{workspace}", FORM, ""),
        case(post(), "/oauth/sign-in", FORM, "email={email}&password=wrong&proof=made-up"),
        case(post(), "/oauth/sign-out", FORM, "proof=made-up"),
        case(get(), "/oauth/outside", FORM, ""),
        case(get(), "/oauth/outside/callback?state={token}&code={token}", FORM, ""),
        case(get(), "/oauth/device?user_code={token}", FORM, ""),
        case(post(), "/oauth/device", FORM, "user_code={token}&proof=made-up"),
        case(get(), "/oauth/join?token={token}", FORM, ""),
        case(
            post(),
            "/oauth/join",
            FORM,
            "token={token}&password=long-enough-for-one&proof=made-up",
        ),
        case(get(), "/v0/oauth/authorize?client_id={client}", FORM, ""),
        case(get(), "/v0/oauth/clients", JSON, ""),
        case(post(), "/v0/oauth/clients", JSON, r#"{"name": "{name}"}"#),
        case(delete(), "/v0/oauth/clients/{client}", JSON, ""),
    ]
}

fn registry() -> Vec<Case> {
    let (get, post, delete) = (|| Method::GET, || Method::POST, || Method::DELETE);
    let (put, patch) = (|| Method::PUT, || Method::PATCH);
    vec![
        case(get(), "/v2/", JSON, ""),
        case(get(), "/v2/token?scope=repository:{workspace}/job/{name}:pull", JSON, ""),
        case(get(), "/v2/_catalog", JSON, ""),
        case(get(), "/v2/{workspace}/job/{name}/tags/list", JSON, ""),
        case(get(), "/v2/{workspace}/job/{name}/manifests/{token}", JSON, ""),
        case(put(), "/v2/{workspace}/job/{name}/manifests/{token}", JSON, "{}"),
        case(delete(), "/v2/{workspace}/job/{name}/manifests/{token}", JSON, ""),
        case(get(), "/v2/{workspace}/job/{name}/blobs/{token}", JSON, ""),
        case(delete(), "/v2/{workspace}/job/{name}/blobs/{token}", JSON, ""),
        case(post(), "/v2/{workspace}/job/{name}/blobs/uploads/", JSON, ""),
        case(get(), "/v2/{workspace}/job/{name}/blobs/uploads/{token}", JSON, ""),
        case(patch(), "/v2/{workspace}/job/{name}/blobs/uploads/{token}", JSON, "x"),
        case(put(), "/v2/{workspace}/job/{name}/blobs/uploads/{token}", JSON, "x"),
        case(delete(), "/v2/{workspace}/job/{name}/blobs/uploads/{token}", JSON, ""),
        case(get(), "/v2/{workspace}/job/{name}/referrers/{token}", JSON, ""),
        case(get(), "/v2/{workspace}/{name}/tags/list", JSON, ""),
        case(get(), "/v2/{workspace}/{name}/manifests/{token}", JSON, ""),
    ]
}

/// Uploads, webhooks, triggers and pages.
fn others() -> Vec<Case> {
    let (get, post) = (|| Method::GET, || Method::POST);
    vec![
        case(post(), "/v0/webhooks/github/{workspace}", JSON, r#"{"action": "queued"}"#),
        case(Method::PUT, "/v0/uploads/{token}", "application/zip", "PK"),
        case(post(), "/{workspace}/{name}", JSON, "{}"),
        case(post(), "/run/{workspace}/{name}", JSON, "{}"),
        case(get(), "/v0/openapi.json", JSON, ""),
        case(get(), "/v0/docs", JSON, ""),
        case(get(), "/v0/docs/page.js", JSON, ""),
        case(get(), "/v0/docs/page.css", JSON, ""),
        case(get(), "/v0/docs/edge-errors", JSON, ""),
    ]
}

/// Values for the placeholders of a case.
struct Filling<'f> {
    client: &'f str,
    token: &'f str,
    email: &'f str,
    name: &'f str,
    workspace: &'f str,
}

impl Filling<'_> {
    fn fill(&self, text: &str) -> String {
        text.replace("{client}", self.client)
            .replace("{token}", self.token)
            .replace("{email}", self.email)
            .replace("{name}", self.name)
            .replace("{workspace}", self.workspace)
    }

    fn forget(&self, answer: &Answer, text: &str) -> String {
        let mut text = format!("{} {text}", answer.status);
        for word in [self.client, self.token, self.email, self.name, self.workspace] {
            text = text.replace(word, "<it>").replace(&word.replace('@', "%40"), "<it>");
        }
        // Each page has its own proof, each device a code, each answer of S3 an id.
        let random =
            regex::Regex::new(r#"(value="|_code":"|user_code=|<RequestId>)[^"&<]+"#).unwrap();
        random.replace_all(&text, "$1<random>").into_owned()
    }
}

async fn send(cloud: &Cloud, case: &Case, filling: &Filling<'_>) -> String {
    // Endpoints of OAuth exist under both bases.
    let path = filling.fill(case.path);
    let headers = [("content-type", case.kind)];
    let answer =
        cloud.raw(case.method.clone(), &path, &headers, filling.fill(case.body).into_bytes()).await;
    assert!(!answer.status.is_server_error(), "{path}: {}", answer.status);
    let location = answer
        .headers
        .get("location")
        .map(|to| to.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let text = format!("{} {location}", answer.text);
    assert!(!text.contains(MARK), "{path} shows what is somebody else's: {text}");
    filling.forget(&answer, &text)
}

#[tokio::test]
async fn without_credentials_nothing_is_told_of_anybody() {
    let cloud = Cloud::start().await;
    let stage = Stage::furnished(&cloud).await;
    let (client, no_client) = (stage.honest.fill("{clientId}"), stage.absent.fill("{clientId}"));
    let key = cloud.first.api_key.as_str();
    let no_key = format!("{}{}", &key[..key.len() - 8], "aaaaaaaa");
    let no_email = format!("x{}", &cloud.first.email[1..]);
    let before = stage.seen().await;
    for case in cases() {
        // A valid key is a token that this caller does not have: nothing accepts it where it is not
        // a bearer token.
        let honest = Filling {
            client: &client,
            token: key,
            email: &cloud.first.email,
            name: HONEST,
            workspace: HOME,
        };
        let absent = Filling {
            client: &no_client,
            token: &no_key,
            email: &no_email,
            name: ABSENT,
            workspace: NOWHERE,
        };
        let (theirs, made_up) =
            (send(&cloud, &case, &honest).await, send(&cloud, &case, &absent).await);
        assert_eq!(theirs, made_up, "{} {} tells what is there", case.method, case.path);
    }
    assert_eq!(before, stage.seen().await);
}

/// A new route is tried above, or is an operation of the table.
#[test]
fn every_address_is_tried() {
    let document = api::document();
    let mut tried: BTreeSet<(String, String)> = cases()
        .into_iter()
        .flat_map(|case| {
            let path = case.path.split('?').next().unwrap();
            let path = path.replace("{client}", "{id}");
            let path = match path.strip_prefix("/v2/") {
                Some(_) => path.replace("/job/", "/{type}/").replace("{token}", "{it}"),
                None if path.starts_with("/s3/") => {
                    path.replace("{workspace}", "{bucket}").replace("{name}", "{key}")
                }
                None => path.replace("{token}", "{secret}").replace("{name}", "{trigger}"),
            };
            [
                (case.method.to_string(), path.clone()),
                (case.method.to_string(), format!("/v0{path}")),
            ]
        })
        .collect();
    for (path, item) in document["paths"].as_object().unwrap() {
        let bases = if item.get("servers").is_some() { ["", "/run"] } else { ["/v0", "/api"] };
        for method in ["GET", "POST", "PUT", "DELETE"]
            .into_iter()
            .filter(|it| item.get(it.to_lowercase()).is_some())
        {
            tried.extend(bases.map(|base| (method.to_owned(), format!("{base}{path}"))));
        }
    }
    let served = api::addresses();
    assert!(served.len() > 350, "only {} addresses", served.len());
    let missed: Vec<_> = served
        .into_iter()
        .map(|(method, path)| {
            let its = ["{reference}", "{digest}", "{upload}"];
            (method, its.iter().fold(path, |path, it| path.replace(it, "{it}")))
        })
        .filter(|(method, path)| !tried.contains(&(method.to_string(), path.clone())))
        .collect();
    assert!(missed.is_empty(), "no hostile tenant tries {missed:?}");
}
