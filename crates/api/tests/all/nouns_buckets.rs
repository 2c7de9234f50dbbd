//! Drives as S3 clients reach them: whose key can sign, and which buckets a caller sees.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::common::machine::Pretended;
use crate::common::s3::code;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Answer, Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::instance::Outcome;

async fn signed(cloud: &Cloud, method: Method, path: &str, key: (&str, &str)) -> Answer {
    cloud.s3(method, path, &[], key, "").await
}

async fn service_account_key(cloud: &Cloud) -> (String, String, String) {
    let account = cloud.post("/v0/service_accounts", json!({"name": "s3"})).await.ok();
    let path = format!("/v0/service_accounts/{}/api_keys", account["client_id"].as_str().unwrap());
    let key = cloud.post(&path, json!({"name": "k", "expires_in": "1h"})).await.ok();
    let text = |member: &str| key[member].as_str().unwrap().to_owned();
    let (id, value) = (text("id"), text("apiKey"));
    (format!("{path}/{id}"), id, value)
}

async fn drive(cloud: &Cloud) -> Value {
    cloud.post("/v0/drives", json!({"metadata": {"name": "data-1"}, "spec": {}})).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_names_the_one_that_has_the_drive() {
    let mut cloud = Cloud::start().await;
    drive(&cloud).await;
    let bucket = format!("drv-data-1-{}", cloud.workspace("main").await);
    cloud.tell(KindName::Drive, "", "data-1", json!({"machine": "first"})).await;
    for (name, url) in [("first", "http://a.test:8700"), ("second", "http://b.test:8700")] {
        let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name);
        cloud.settings.public_url = url.to_owned();
        cloud.restart_on(Arc::new(machine)).await;
    }
    let read = cloud.get("/v0/drives/data-1").await.ok();
    assert_eq!(read["state"]["s3Url"], json!(format!("http://a.test:8700/s3/{bucket}")));
    assert!(read["metadata"].get("url").is_none(), "{read}");
    let (_, id, key) = service_account_key(&cloud).await;
    let object = format!("/s3/{bucket}/a");
    let answer = signed(&cloud, Method::GET, &object, (&id, &key)).await;
    // No client takes this for an answer to try again.
    assert_eq!(code(&answer), (400, "InvalidRequest"), "{}", answer.text);
    assert!(answer.text.contains("ask http://a.test:8700"), "{}", answer.text);
}

#[tokio::test]
async fn keys_of_service_accounts_sign_for_the_drives_of_their_workspace() {
    let cloud = Cloud::start().await;
    let made = drive(&cloud).await;
    let bucket = format!("drv-data-1-{}", cloud.workspace("main").await);
    let url = format!("http://localhost:8080/s3/{bucket}");
    assert_eq!(made["state"]["s3Url"], json!(url));
    assert_eq!(cloud.get("/v0/drives/data-1").await.ok()["state"]["s3Url"], json!(url));

    let (at, id, key) = service_account_key(&cloud).await;
    let listed = signed(&cloud, Method::GET, "/s3/", (&id, &key)).await;
    assert_eq!(code(&listed), (200, ""), "{}", listed.text);
    assert_eq!(listed.text.matches("<Name>").count(), 1);
    assert!(listed.text.contains(&format!("<Name>{bucket}</Name>")), "{}", listed.text);

    // No machine here keeps it, and there are no other machines.
    let object = format!("/s3/{bucket}/a");
    let get = async |path: &str, id: &str, key: &str| {
        let answer = signed(&cloud, Method::GET, path, (id, key)).await;
        let (status, code) = code(&answer);
        format!("{status} {code}")
    };
    assert_eq!(get(&object, &id, &key).await, "503 ServiceUnavailable");
    for other in ["/s3/drv-data-2-ws", "/s3/data-1", "/s3/drv-data-1-ws_other"] {
        assert_eq!(get(other, &id, &key).await, "404 NoSuchBucket");
        assert_eq!(get(other, &id, "wrong").await, "403 SignatureDoesNotMatch");
    }
    assert_eq!(get(&object, &id, "wrong").await, "403 SignatureDoesNotMatch");
    assert_eq!(get(&object, "ak_none", &key).await, "403 InvalidAccessKeyId");

    // Of a person's key, only a digest is kept.
    let persons = cloud.post("/v0/api_keys", json!({"name": "mine"})).await.ok();
    let (persons_id, persons) =
        (persons["id"].as_str().unwrap(), persons["apiKey"].as_str().unwrap());
    assert_eq!(get(&object, persons_id, persons).await, "403 AccessDenied");

    cloud.clock.advance_s(16 * 60);
    assert_eq!(get(&object, &id, &key).await, "403 RequestTimeTooSkewed");
    cloud.clock.advance_s(-16 * 60);
    assert_eq!(get(&object, &id, &key).await, "503 ServiceUnavailable");
    cloud.delete(&at).await.ok();
    assert_eq!(get(&object, &id, &key).await, "403 InvalidAccessKeyId");
}

#[tokio::test]
async fn what_signs_goes_with_its_service_account() {
    let cloud = Cloud::start().await;
    drive(&cloud).await;
    let (at, id, key) = service_account_key(&cloud).await;
    let kept = store::identity::api_keys::secret;
    let find = {
        let id = types::ids::ApiKeyId::known(id.clone());
        move |tx: &mut store::Tx<'_>| kept(tx, &id)
    };
    assert_eq!(cloud.store.read(find.clone()).await.unwrap().as_deref(), Some(key.as_str()));
    cloud.delete(at.rsplit_once("/api_keys").unwrap().0).await.ok();
    assert_eq!(cloud.store.read(find).await.unwrap(), None);
    let answer = signed(&cloud, Method::GET, "/s3/", (&id, &key)).await;
    assert_eq!(code(&answer), (403, "InvalidAccessKeyId"));
}

/// Starts a machine that keeps drives, with one in each of two workspaces.
async fn two_workspaces(limits: control::S3Limits) -> (Cloud, [String; 2]) {
    let volumes = PretendedVolumes::new(10_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let settings = control::Settings { s3: limits, ..settings() };
    let cloud = Cloud::start_on_machine(machine, settings).await;
    // Done while there is only one workspace, so that it need not be named.
    drive(&cloud).await;
    cloud.post("/v0/workspaces", json!({"name": "near"})).await.ok();
    let near = [("x-blaxel-workspace", "near")];
    let body = json!({"metadata": {"name": "data-1"}, "spec": {}});
    cloud.call_with(Method::POST, "/v0/drives", &near, Some(body)).await.ok();
    let path = async |workspace| format!("/s3/drv-data-1-{}", cloud.workspace(workspace).await);
    let paths = [path("main").await, path("near").await];
    (cloud, paths)
}

/// Repeats a request until the answer is as wanted.
async fn until_code(cloud: &Cloud, path: &str, key: (&str, &str), wanted: (u16, &str)) {
    let asked = async {
        loop {
            let answer = signed(cloud, Method::GET, path, key).await;
            if code(&answer) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
}

#[tokio::test]
async fn all_keys_of_a_workspace_have_one_share_of_the_requests() {
    let limits =
        control::S3Limits { requests_max: 4, requests_workspace_max: 2, ..Default::default() };
    let (cloud, [main, near]) = two_workspaces(limits).await;
    let cloud = Arc::new(cloud);
    let (first, second) = (cloud.signing_key("main").await, cloud.signing_key("main").await);
    let (first, second) = ((&*first.0, &*first.1), (&*second.0, &*second.1));
    let other = cloud.signing_key("near").await;
    let other = (&*other.0, &*other.1);

    // Somebody who knows the id of a key but not the key uses up nothing.
    for _ in 0..8 {
        let forged = cloud.hanging_put(&format!("{main}/forged"), (first.0, "wrong")).await;
        assert_eq!(forged, 403);
    }
    let hang = |name: &str, (id, key): (&str, &str)| {
        let (cloud, path) = (Arc::clone(&cloud), format!("{main}/{name}"));
        let key = (id.to_owned(), key.to_owned());
        // Repeated until it is admitted, because the requests below also take a place for a moment.
        tokio::spawn(async move {
            while cloud.hanging_put(&path, (&key.0, &key.1)).await == 503 {
                tokio::task::yield_now().await;
            }
        })
    };
    let held = [hang("a", first), hang("b", second)];
    for key in [first, second] {
        until_code(&cloud, &main, key, (503, "SlowDown")).await;
    }
    assert!(held.iter().all(|put| !put.is_finished()));
    let neighbour = signed(&cloud, Method::GET, &near, other).await;
    assert_eq!(code(&neighbour), (200, ""), "{}", neighbour.text);
    for put in held {
        put.abort();
        assert!(put.await.unwrap_err().is_cancelled());
    }
    until_code(&cloud, &main, second, (200, "")).await;
}

#[tokio::test]
async fn no_key_opens_the_bucket_of_another_workspace() {
    let (cloud, [main, near]) = two_workspaces(control::S3Limits::default()).await;
    let (mine, theirs) = (cloud.signing_key("main").await, cloud.signing_key("near").await);
    let (mine, theirs) = ((&*mine.0, &*mine.1), (&*theirs.0, &*theirs.1));
    let object = format!("{main}/secret");
    assert_eq!(code(&cloud.s3(Method::PUT, &object, &[], mine, "only mine").await), (200, ""));
    let begun = cloud.s3(Method::POST, &format!("{main}/parts?uploads="), &[], mine, "").await;
    let upload = begun.text.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;

    // The same for a bucket that nobody has.
    let random = regex::Regex::new("<RequestId>[^<]+").unwrap();
    let absent = main.replace("data-1", "data-9");
    let part = format!("parts?partNumber=1&uploadId={upload}");
    let of_upload = format!("parts?uploadId={upload}");
    let delete = "<Delete><Object><Key>secret</Key></Object></Delete>";
    for (method, key, body) in [
        (Method::GET, "", ""),
        (Method::GET, "?list-type=2", ""),
        (Method::GET, "?uploads=", ""),
        (Method::POST, "?delete=", delete),
        (Method::PUT, "", ""),
        (Method::GET, "/secret", ""),
        (Method::HEAD, "/secret", ""),
        (Method::PUT, "/secret", "theirs now"),
        (Method::DELETE, "/secret", ""),
        (Method::POST, "/new?uploads=", ""),
        (Method::PUT, &format!("/{part}"), "part"),
        (Method::GET, &format!("/{of_upload}"), ""),
        (Method::POST, &format!("/{of_upload}"), "<CompleteMultipartUpload/>"),
        (Method::DELETE, &format!("/{of_upload}"), ""),
        (Method::GET, "/../../etc/passwd", ""),
    ] {
        let ask = async |bucket: &str| {
            let answer =
                cloud.s3(method.clone(), &format!("{bucket}{key}"), &[], theirs, body).await;
            assert_eq!(answer.status, 404, "{method} {key}: {}", answer.text);
            random.replace(&answer.text, "").replace(bucket, "<bucket>")
        };
        assert_eq!(ask(&main).await, ask(&absent).await, "{method} {key} tells of a bucket");
    }
    // With an upload of another workspace in one's own bucket, and a copy from there.
    let elsewhere = cloud.s3(Method::PUT, &format!("{near}/{part}"), &[], theirs, "x").await;
    assert_eq!(code(&elsewhere), (404, "NoSuchUpload"));
    for source in [&object, &absent] {
        let source = source.strip_prefix("/s3").unwrap().to_owned();
        let source = if source.ends_with("secret") { source } else { format!("{source}/secret") };
        let from = [("x-amz-copy-source", source.as_str())];
        let copied = cloud.s3(Method::PUT, &format!("{near}/copy"), &from, theirs, "").await;
        assert_eq!(code(&copied), (404, "NoSuchBucket"), "{}", copied.text);
    }
    let listed = cloud.s3(Method::GET, "/s3/", &[], theirs, "").await;
    assert!(!listed.text.contains(main.strip_prefix("/s3/").unwrap()), "{}", listed.text);

    // Presigned addresses.
    let good = crate::common::s3::presigned(&object, mine);
    assert_eq!(cloud.follow(&good).await.text, "only mine");
    let theirs_for_mine = crate::common::s3::presigned(&object, theirs);
    assert_eq!(code(&cloud.follow(&theirs_for_mine).await), (404, "NoSuchBucket"));
    let with_their_id = good.replace(mine.0, theirs.0);
    assert_eq!(code(&cloud.follow(&with_their_id).await), (403, "SignatureDoesNotMatch"));
    let signed_by_them = crate::common::s3::presigned(&object, (mine.0, theirs.1));
    assert_eq!(code(&cloud.follow(&signed_by_them).await), (403, "SignatureDoesNotMatch"));
    for (from, to) in [("/secret?", "/other?"), ("Expires=60", "Expires=600"), (&*main, &*near)] {
        let turned = cloud.follow(&good.replacen(from, to, 1)).await;
        assert_eq!(code(&turned), (403, "SignatureDoesNotMatch"), "{from}");
    }
    cloud.clock.advance_s(61);
    assert_eq!(code(&cloud.follow(&good).await), (403, "AccessDenied"));
    cloud.clock.advance_s(-61);
    // Everything is unchanged.
    let list = cloud.s3(Method::GET, &main, &[], mine, "").await;
    assert_eq!(list.text.matches("<Key>").count(), 1, "{}", list.text);
    let parts = cloud.s3(Method::GET, &format!("{main}/{of_upload}"), &[], mine, "").await;
    assert_eq!((code(&parts), parts.text.matches("<Part>").count()), ((200, ""), 0));
}
