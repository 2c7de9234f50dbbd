//! Tests with the examples that AWS publishes for S3, and its example key.

use super::*;
use crate::access::Secret;
use crate::error::{Code, Error};
use http::Request;
use http::request::Parts;
use types::Timestamp;

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// 2013-05-24T00:00:00Z
const THEN: Timestamp = Timestamp::from_ms(1_369_353_600_000);

fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn signed(signature: &str, names: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders={names},Signature={signature}"
    )
}

fn check(parts: &Parts, now: Timestamp, secret: &str) -> Result<Chain, Error> {
    let query = canonical::query(parts).unwrap();
    Claim::read(parts, query, now)?.check(parts, &Secret::new(secret))
}

fn get(uri: &str, extra: &[(&str, &str)], signature: &str) -> Parts {
    let names: Vec<_> = extra.iter().map(|(name, _)| *name).collect();
    let mut all = vec!["host", "x-amz-content-sha256", "x-amz-date"];
    all.extend(names);
    all.sort_unstable();
    let authorization = signed(signature, &all.join(";"));
    let mut headers = vec![
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", authorization.as_str()),
    ];
    headers.extend(extra);
    parts("GET", uri, &headers)
}

#[test]
fn the_published_requests_are_right_and_no_others() {
    let object = get(
        "/test.txt",
        &[("range", "bytes=0-9")],
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    check(&object, THEN, SECRET).unwrap();
    let lifecycle =
        get("/?lifecycle", &[], "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check(&lifecycle, THEN, SECRET).unwrap();
    let list = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
    check(&get("/?max-keys=2&prefix=J", &[], list), THEN, SECRET).unwrap();
    check(&get("/?prefix=J&max-keys=2", &[], list), THEN, SECRET).unwrap();

    for (other, now, secret, code) in [
        (get("/?max-keys=3&prefix=J", &[], list), THEN, SECRET, Code::SignatureMismatch),
        (get("/a?max-keys=2&prefix=J", &[], list), THEN, SECRET, Code::SignatureMismatch),
        (get("/?max-keys=2&prefix=J", &[], list), THEN, "other", Code::SignatureMismatch),
        (get("/", &[], ""), THEN, SECRET, Code::SignatureMismatch),
        (get("/", &[], list), THEN.plus_s(901), SECRET, Code::ClockSkewed),
        (get("/", &[], list), THEN.plus_s(-901), SECRET, Code::ClockSkewed),
    ] {
        let refused = check(&other, now, secret).err().unwrap();
        assert_eq!(refused.code, code, "{:?}", other.uri);
    }
    check(&get("/?max-keys=2&prefix=J", &[], list), THEN.plus_s(900), SECRET).unwrap();
}

#[test]
fn the_published_address_works_until_it_expires() {
    let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let at = |uri: &str, now, headers: &[(&str, &str)]| {
        let host = [("host", "examplebucket.s3.amazonaws.com")];
        let parts = parts("GET", uri, &[&host, headers].concat());
        check(&parts, now, SECRET).map(drop).map_err(|error| error.code)
    };
    assert_eq!(at(uri, THEN, &[]), Ok(()));
    assert_eq!(at(uri, THEN.plus_s(86_400), &[]), Ok(()));
    assert_eq!(at(uri, THEN.plus_s(86_401), &[]), Err(Code::AccessDenied));
    assert_eq!(at(uri, THEN.plus_s(-901), &[]), Err(Code::AccessDenied));
    let longer = uri.replace("86400", "604801");
    assert_eq!(at(&longer, THEN, &[]), Err(Code::BadSignatureQuery));
    assert_eq!(at(&uri.replace("86400", "86401"), THEN, &[]), Err(Code::SignatureMismatch));
    assert_eq!(at(uri, THEN, &[("x-amz-meta-a", "b")]), Err(Code::AccessDenied));
    let twice = [("authorization", "AWS4-HMAC-SHA256 x")];
    assert_eq!(at(uri, THEN, &twice), Err(Code::InvalidRequest));
}

/// Returns the chain of the published chunked upload, and the signatures of its chunks: 65536 and
/// 1024 times `a`, and the end.
pub(crate) fn published_chain() -> (Chain, [&'static str; 3]) {
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    let names = "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class";
    let request = parts(
        "PUT",
        "/examplebucket/chunkObject.txt",
        &[
            ("host", "s3.amazonaws.com"),
            ("content-encoding", "aws-chunked"),
            ("content-length", "66824"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("authorization", &signed(seed, names)),
        ],
    );
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    (check(&request, THEN, SECRET).unwrap(), signatures)
}

#[test]
fn claims_that_lack_something_are_refused() {
    let whole = signed(EMPTY, "host;x-amz-content-sha256;x-amz-date");
    let at = |authorization: &str| {
        let parts = parts(
            "GET",
            "/",
            &[
                ("host", "h"),
                ("x-amz-content-sha256", EMPTY),
                ("x-amz-date", "20130524T000000Z"),
                ("authorization", authorization),
            ],
        );
        check(&parts, THEN, SECRET).err().unwrap().code
    };
    assert_eq!(at(&whole), Code::SignatureMismatch);
    for (from, to) in [
        ("AWS4-HMAC-SHA256 ", "AWS "),
        ("/s3/", "/sts/"),
        ("/20130524/", "/20130525/"),
        ("aws4_request", "aws4_request/x"),
        ("SignedHeaders=host;", "SignedHeaders="),
        (";x-amz-date", ";x-amz-Date"),
        ("host;x-amz-content-sha256", "x-amz-content-sha256;host"),
        ("Signature=", "Signature=a,Signature="),
    ] {
        assert_eq!(at(&whole.replace(from, to)), Code::BadSignatureHeader, "{from}");
    }
    assert_eq!(at(&whole.replace(";x-amz-date", "")), Code::AccessDenied);
}
