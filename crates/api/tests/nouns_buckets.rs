//! Drives as S3 clients reach them: whose key signs, and whose buckets there are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Answer, Cloud};
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// When the clock of tests begins.
const DATE: &str = "20260416T004000Z";
const HOST: &str = "localhost:8080";

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a request that is signed with a key.
async fn signed(cloud: &Cloud, method: Method, path: &str, (id, key): (&str, &str)) -> Answer {
    let (day, empty) = (&DATE[..8], hex(&Sha256::digest(b"")));
    let names = "host;x-amz-content-sha256;x-amz-date";
    let request = format!(
        "{method}\n{path}\n\nhost:{HOST}\nx-amz-content-sha256:{empty}\nx-amz-date:{DATE}\n\n{names}\n{empty}"
    );
    let scope = format!("{day}/any/s3/aws4_request");
    let request = hex(&Sha256::digest(request.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{DATE}\n{scope}\n{request}");
    let first = format!("AWS4{key}").into_bytes();
    let parts = [day, "any", "s3", "aws4_request"];
    let signing = parts.iter().fold(first, |key, part| hmac(&key, part));
    let signature = hex(&hmac(&signing, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
    );
    let headers = [
        ("host", HOST),
        ("x-amz-date", DATE),
        ("x-amz-content-sha256", &empty),
        ("authorization", &authorization),
    ];
    cloud.raw(method, path, &headers, Vec::new()).await
}

#[track_caller]
fn code(answer: &Answer) -> (u16, &str) {
    let code = answer.text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    (answer.status.as_u16(), code.map_or("", |(code, _)| code))
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

    // There is no machine here that keeps it, and there are no others.
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

    // A person's key is kept as a digest only.
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
