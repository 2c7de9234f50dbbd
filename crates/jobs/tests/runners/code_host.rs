//! A stand-in for the code host's API, written after its published documentation. It can also
//! answer late, wrongly or not at all.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use types::Timestamp;

pub(crate) const TOKEN: &str = "ghp_secret";
pub(crate) const REPOSITORY: &str = "me/repo";

#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) busy: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct HostedJob {
    pub(crate) labels: Vec<String>,
    pub(crate) status: &'static str,
    pub(crate) runner: Option<String>,
}

/// How the next requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// This many requests get a 502.
    Failing(usize),
    /// Requests over the limit are refused until this second.
    Limited {
        reset_s: i64,
    },
    /// Registrations are answered only after the caller has given up.
    Slow,
}

pub(crate) struct Hosted {
    pub(crate) jobs: BTreeMap<i64, HostedJob>,
    pub(crate) runners: BTreeMap<i64, Registered>,
    pub(crate) tokens: BTreeSet<String>,
    pub(crate) mood: Mood,
    /// The method and path of each request.
    pub(crate) asked: Vec<String>,
    /// How many requests were answered with 304.
    pub(crate) unchanged: usize,
    /// How many runners were registered.
    pub(crate) registrations: usize,
    /// The public key of the app, if there is one.
    pub(crate) app_key: Option<Vec<u8>>,
    next: i64,
}

#[derive(Clone)]
pub(crate) struct CodeHost {
    pub(crate) state: Arc<Mutex<Hosted>>,
    pub(crate) url: String,
    now: Arc<AtomicI64>,
}

type Answer = (StatusCode, Value);

impl CodeHost {
    pub(crate) async fn start(now: Arc<AtomicI64>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Hosted {
            jobs: BTreeMap::new(),
            runners: BTreeMap::new(),
            tokens: BTreeSet::from([TOKEN.to_owned()]),
            mood: Mood::Well,
            asked: Vec::new(),
            unchanged: 0,
            registrations: 0,
            app_key: None,
            next: 100,
        };
        let host = Self { state: Arc::new(Mutex::new(state)), url, now };
        let router = Router::new().fallback(answer).with_state(host.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        host
    }

    pub(crate) fn queue(&self, id: i64, labels: &[&str]) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.state.lock().jobs.insert(id, HostedJob { labels, status: "queued", runner: None });
    }

    /// Lets a runner's program pick up a workflow job. The code host allows that only if the runner
    /// has all its labels.
    pub(crate) fn pick_up(&self, id: i64, runner: &str) {
        let mut state = self.state.lock();
        let labels = state.jobs[&id].labels.clone();
        let registered = state
            .runners
            .values_mut()
            .find(|known| known.name == runner)
            .expect("it is registered");
        assert!(!registered.busy, "a runner takes one workflow job");
        assert!(
            labels.iter().all(|label| registered.labels.contains(label)),
            "{labels:?} {registered:?}"
        );
        registered.busy = true;
        let job = state.jobs.get_mut(&id).unwrap();
        assert_eq!(job.status, "queued");
        (job.status, job.runner) = ("in_progress", Some(runner.to_owned()));
    }

    /// Ends a workflow job, which also ends the registration of its runner.
    pub(crate) fn complete(&self, id: i64) {
        let mut state = self.state.lock();
        let job = state.jobs.get_mut(&id).unwrap();
        job.status = "completed";
        let runner = job.runner.clone();
        state.runners.retain(|_, known| Some(&known.name) != runner.as_ref());
    }

    pub(crate) fn runner_names(&self) -> Vec<String> {
        self.state.lock().runners.values().map(|runner| runner.name.clone()).collect()
    }

    pub(crate) fn count(&self, start: &str) -> usize {
        self.state.lock().asked.iter().filter(|asked| asked.starts_with(start)).count()
    }

    /// Returns the body of a webhook that describes a workflow job as it is now.
    pub(crate) fn webhook(&self, id: i64) -> Vec<u8> {
        let state = self.state.lock();
        let job = shown(id, &state.jobs[&id]);
        json!({"action": job["status"], "workflow_job": job, "repository": {"full_name": REPOSITORY}})
            .to_string()
            .into()
    }

    fn seconds(&self) -> i64 {
        Timestamp::from_ms(self.now.load(Ordering::SeqCst)).seconds()
    }
}

fn shown(id: i64, job: &HostedJob) -> Value {
    json!({
        "id": id, "run_id": id / 10, "status": job.status, "labels": job.labels, "runner_name": job.runner,
        "conclusion": if job.status == "completed" { Some("success") } else { None }, "name": "build", "steps": [],
    })
}

async fn answer(
    State(host): State<CodeHost>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path().to_owned();
    let mood = {
        let mut state = host.state.lock();
        state.asked.push(format!("{method} {path}"));
        if let Mood::Failing(left) = &mut state.mood {
            let failing = *left > 0;
            *left = left.saturating_sub(1);
            if failing {
                return reply(StatusCode::BAD_GATEWAY, &json!({}), &[]);
            }
        }
        state.mood
    };
    if let Mood::Limited { reset_s } = mood
        && host.seconds() < reset_s
    {
        let limits = [("x-ratelimit-remaining", 0), ("x-ratelimit-reset", reset_s)];
        return reply(
            StatusCode::FORBIDDEN,
            &json!({"message": "API rate limit exceeded"}),
            &limits,
        );
    }
    let (status, value) = {
        let mut state = host.state.lock();
        match allowed(&state, &host, &headers, &path) {
            Ok(()) => {
                route(&mut state, &host, &method, &path, uri.query().unwrap_or_default(), &body)
            }
            Err(refusal) => refusal,
        }
    };
    if mood == Mood::Slow && path.ends_with("generate-jitconfig") {
        std::future::pending::<()>().await;
    }
    let tag = format!(
        "\"{:x}\"",
        value.to_string().bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte))
    );
    if method == Method::GET
        && headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes())
    {
        host.state.lock().unchanged += 1;
        return Response::builder()
            .status(StatusCode::NOT_MODIFIED)
            .header(header::ETAG, tag)
            .body(Body::empty())
            .unwrap();
    }
    let mut response = reply(status, &value, &[("x-ratelimit-remaining", 4000)]);
    response.headers_mut().insert(header::ETAG, tag.parse().unwrap());
    response
}

fn reply(status: StatusCode, value: &Value, headers: &[(&str, i64)]) -> Response<Body> {
    let empty = status == StatusCode::NO_CONTENT;
    let body = if empty { Body::empty() } else { Body::from(value.to_string()) };
    let response = headers
        .iter()
        .fold(Response::builder().status(status), |made, (name, value)| made.header(*name, *value));
    response.body(body).unwrap()
}

fn refuse(status: u16, message: &str) -> Answer {
    (StatusCode::from_u16(status).unwrap(), json!({"message": message}))
}

fn allowed(state: &Hosted, host: &CodeHost, headers: &HeaderMap, path: &str) -> Result<(), Answer> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")).unwrap_or_default();
    assert!(headers.contains_key(header::USER_AGENT), "requests without it are refused");
    let right = match (&state.app_key, path.starts_with("/app/")) {
        (Some(key), true) => proves(token, key, host.seconds()),
        _ => state.tokens.contains(token),
    };
    if right { Ok(()) } else { Err(refuse(401, "Bad credentials")) }
}

/// True if a JSON Web Token proves at this time that the caller is the app 77.
fn proves(token: &str, key: &[u8], now: i64) -> bool {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = BASE64.decode(signature).unwrap();
    let claims: Value =
        serde_json::from_slice(&BASE64.decode(signed.split('.').nth(1).unwrap()).unwrap()).unwrap();
    let (iat, exp) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    let right = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
        .verify(signed.as_bytes(), &signature)
        .is_ok();
    right && claims["iss"] == "77" && iat <= now && exp > now && exp <= now + 600
}

fn route(
    state: &mut Hosted,
    host: &CodeHost,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Answer {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["app", "installations", "99", "access_tokens"]) => {
            let token = format!("ghs_{}", state.tokens.len());
            state.tokens.insert(token.clone());
            let expires_at = Timestamp::from_ms((host.seconds() + 3600) * 1000);
            (StatusCode::CREATED, json!({"token": token, "expires_at": expires_at}))
        }
        ("POST", ["repos", "me", "repo", "actions", "runners", "generate-jitconfig"]) => {
            register(state, body)
        }
        ("GET", ["repos", "me", "repo", "actions", "runners"]) => {
            let runner = |(id, known): (&i64, &Registered)| json!({"id": id, "name": known.name, "busy": known.busy});
            let runners: Vec<Value> = state.runners.iter().map(runner).collect();
            (StatusCode::OK, json!({"total_count": runners.len(), "runners": page(runners, query)}))
        }
        ("DELETE", ["repos", "me", "repo", "actions", "runners", id]) => {
            remove(state, id.parse().unwrap())
        }
        ("GET", ["repos", "me", "repo", "actions", "runs"]) => {
            let status = query.split('&').find_map(|pair| pair.strip_prefix("status=")).unwrap();
            let of = state.jobs.iter().filter(|(_, job)| job.status == status);
            let runs: BTreeSet<i64> = of.map(|(id, _)| id / 10).collect();
            let runs: Vec<Value> =
                runs.into_iter().map(|id| json!({"id": id, "status": status})).collect();
            (StatusCode::OK, json!({"total_count": runs.len(), "workflow_runs": page(runs, query)}))
        }
        ("GET", ["repos", "me", "repo", "actions", "runs", run, "jobs"]) => {
            let run: i64 = run.parse().unwrap();
            let jobs = state.jobs.iter().filter(|(id, _)| **id / 10 == run);
            let jobs: Vec<Value> = jobs.map(|(id, job)| shown(*id, job)).collect();
            (StatusCode::OK, json!({"total_count": jobs.len(), "jobs": page(jobs, query)}))
        }
        ("GET", ["repos", "me", "repo", "actions", "jobs", id]) => {
            let id: i64 = id.parse().unwrap();
            state
                .jobs
                .get(&id)
                .map_or(refuse(404, "Not Found"), |job| (StatusCode::OK, shown(id, job)))
        }
        _ => refuse(404, "Not Found"),
    }
}

fn page(items: Vec<Value>, query: &str) -> Vec<Value> {
    let number = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap().parse::<usize>().unwrap()
    };
    let (size, page) = (number("per_page="), number("page="));
    assert!(size <= 100);
    items.into_iter().skip((page - 1) * size).take(size).collect()
}

fn register(state: &mut Hosted, body: &[u8]) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap();
    let name = asked["name"].as_str().unwrap().to_owned();
    assert!(
        name.len() <= 64 && asked["runner_group_id"].is_i64() && asked["work_folder"].is_string()
    );
    if state.runners.values().any(|known| known.name == name) {
        return refuse(409, "Already exists");
    }
    let labels: Vec<String> = serde_json::from_value(asked["labels"].clone()).unwrap();
    state.next += 1;
    state.registrations += 1;
    let id = state.next;
    state.runners.insert(id, Registered { name: name.clone(), labels, busy: false });
    let configuration = format!("jit:{name}");
    (
        StatusCode::CREATED,
        json!({"runner": {"id": id, "name": name}, "encoded_jit_config": configuration}),
    )
}

fn remove(state: &mut Hosted, id: i64) -> Answer {
    match state.runners.get(&id) {
        None => refuse(404, "Not Found"),
        Some(runner) if runner.busy => {
            refuse(422, "Runner is currently running a job and cannot be deleted.")
        }
        Some(_) => {
            state.runners.remove(&id);
            (StatusCode::NO_CONTENT, Value::Null)
        }
    }
}
