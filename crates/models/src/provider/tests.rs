use super::*;
use http::header::{HeaderName, HeaderValue};
use types::Timestamp;
use types::kinds::model::ModelType;
use types::parts::TextMap;

fn map(pairs: &[(&str, &str)]) -> TextMap {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn of(kind: ModelType, config: &[(&str, &str)], secrets: &[(&str, &str)]) -> ModelProvider {
    ModelProvider {
        kind,
        model: None,
        endpoint_name: None,
        organization: None,
        connection: None,
        config: map(config),
        secrets: Sensitive(map(secrets)),
        sandbox: false,
    }
}

const KEY: &[(&str, &str)] = &[("apiKey", "s3cret")];

fn url(of: &ModelProvider, path: &str, model: &str) -> String {
    let operation = Operation::of(path);
    let provider = Provider::new(of).unwrap();
    let spoken = match provider.native(operation) {
        Way::Passes => None,
        Way::Translates(dialect) => Some(dialect),
        Way::Unsupported => return "unsupported".into(),
    };
    provider.target(operation, spoken, path, None, model, false).unwrap().url.to_string()
}

#[test]
fn a_model_in_a_path_is_replaced() {
    let replaced = |path: &'static str, model: &str| with_model(path, model).unwrap();
    let count = "/v1beta/models/mine:countTokens";
    assert_eq!(replaced(count, "gemini-x"), "/v1beta/models/gemini-x:countTokens");
    assert_eq!(replaced(count, "models/gemini-x"), "/v1beta/models/gemini-x:countTokens");
    assert_eq!(replaced("/models/a/b:countTokens", "a?b"), "/models/a%3Fb:countTokens");
    assert_eq!(replaced("/v1/messages/count_tokens", "m"), "/v1/messages/count_tokens");
    assert!(with_model(count, "../up").is_err());
}

#[test]
fn every_provider_is_asked_at_its_own_address() {
    use ModelType::*;
    let chat = "/chat/completions";
    let endpoint = &[("endpoint", "https://me.example.net")][..];
    let project = &[("project", "p1")][..];
    for (kind, config, path, wanted) in [
        (Openai, &[][..], chat, "https://api.openai.com/v1/chat/completions"),
        (Openai, &[], "/v1/responses", "https://api.openai.com/v1/responses"),
        (Openai, &[], "/files", "https://api.openai.com/v1/files"),
        (
            Openai,
            &[("baseUrl", "http://vllm:8000/v1")],
            chat,
            "http://vllm:8000/v1/chat/completions",
        ),
        (Anthropic, &[], chat, "https://api.anthropic.com/v1/messages"),
        (
            Anthropic,
            &[],
            "/messages/count_tokens",
            "https://api.anthropic.com/v1/messages/count_tokens",
        ),
        (
            Gemini,
            &[],
            "/v1beta/models/x:generateContent",
            "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
        ),
        (
            Gemini,
            &[],
            "/v1beta/models/x:streamGenerateContent",
            "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent",
        ),
        (
            Gemini,
            &[],
            "/v1beta/models/x:embedContent",
            "https://generativelanguage.googleapis.com/v1beta/models/m:embedContent",
        ),
        (
            Gemini,
            &[],
            "/v1/embeddings",
            "https://generativelanguage.googleapis.com/v1beta/models/m:batchEmbedContents",
        ),
        (
            Gemini,
            &[],
            "/v1beta/models/x:countTokens",
            "https://generativelanguage.googleapis.com/v1beta/models/x:countTokens",
        ),
        (
            Vertexai,
            project,
            chat,
            "https://us-central1-aiplatform.googleapis.com/v1/projects/p1/locations/us-central1/publishers/google/models/m:generateContent",
        ),
        (
            Vertexai,
            &[("project", "p1"), ("location", "global")],
            chat,
            "https://aiplatform.googleapis.com/v1/projects/p1/locations/global/publishers/google/models/m:generateContent",
        ),
        (Vertexai, project, "/v1/files", "unsupported"),
        (Cohere, &[], "/v2/chat", "https://api.cohere.com/v2/chat"),
        (Cohere, &[], chat, "https://api.cohere.com/compatibility/v1/chat/completions"),
        (Cohere, &[("dialects", "cohere")], chat, "https://api.cohere.com/v2/chat"),
        (Cohere, &[], "/v1/messages", "https://api.cohere.com/v2/chat"),
        (Groq, &[], chat, "https://api.groq.com/openai/v1/chat/completions"),
        (Mistral, &[], "/v1/messages", "https://api.mistral.ai/v1/chat/completions"),
        (Deepseek, &[], "/v1/embeddings", "unsupported"),
        (
            AzureOpenaiService,
            endpoint,
            chat,
            "https://me.example.net/openai/deployments/m/chat/completions?api-version=2024-10-21",
        ),
        (
            AzureOpenaiService,
            endpoint,
            "/v1/responses",
            "https://me.example.net/openai/v1/responses",
        ),
        (
            AzureAiInference,
            endpoint,
            chat,
            "https://me.example.net/models/chat/completions?api-version=2024-05-01-preview",
        ),
        (
            AzureOpenaiService,
            &[("endpoint", "https://a.test/openai/v1/")],
            chat,
            "https://a.test/openai/deployments/m/chat/completions?api-version=2024-10-21",
        ),
        (
            Cohere,
            &[("endpoint", "https://a.test/v2")],
            chat,
            "https://a.test/compatibility/v1/chat/completions",
        ),
        (AzureMarketplace, endpoint, chat, "https://me.example.net/v1/chat/completions"),
        (
            HfPublicEndpoint,
            &[],
            chat,
            "https://router.huggingface.co/hf-inference/models/m/v1/chat/completions",
        ),
        (HfPrivateEndpoint, endpoint, chat, "https://me.example.net/v1/chat/completions"),
    ] {
        assert_eq!(url(&of(kind, config, KEY), path, "m"), wanted, "{kind:?} {path}");
    }
    let shown =
        "https://a.test/openai/deployments/d/chat/completions?api-version=2025-01-01-preview";
    let shown = &[("endpoint", shown)][..];
    for (path, wanted) in [
        (chat, "openai/deployments/m/chat/completions?api-version=2025-01-01-preview"),
        ("/embeddings", "openai/deployments/m/embeddings?api-version=2025-01-01-preview"),
        ("/v1/responses", "openai/v1/responses"),
        ("/v1/files", "openai/v1/files"),
    ] {
        let wanted = format!("https://a.test/{wanted}");
        assert_eq!(url(&of(AzureOpenaiService, shown, KEY), path, "m"), wanted);
    }
    let behind = &[("endpoint", "https://a.test/openai/openai/deployments/openai/x")][..];
    let behind = url(&of(AzureOpenaiService, behind, KEY), chat, "m");
    assert!(behind.starts_with("https://a.test/openai/openai/deployments/m/chat/"), "{behind}");
    let mut deployed = of(AzureOpenaiService, endpoint, KEY);
    deployed.endpoint_name = Some("mine".into());
    assert!(url(&deployed, chat, "m").contains("/deployments/mine/"));
    let public = of(HfPublicEndpoint, &[], KEY);
    assert!(url(&public, chat, "org/na me").contains("/models/org/na%20me/v1/"));
}

#[test]
fn what_a_connection_lacks_is_said() {
    use ModelType::*;
    let error = |of: &ModelProvider| Provider::new(of).unwrap_err().to_string();
    assert_eq!(
        error(&of(Openai, &[], &[])),
        "the connection to OpenAI lacks `apiKey` in its secrets"
    );
    assert!(error(&of(AzureOpenaiService, &[], KEY)).ends_with("lacks `endpoint` in its config"));
    assert!(
        error(&of(Vertexai, &[("region", "evil.com/"), ("project", "p")], KEY)).contains("region")
    );
    assert!(error(&of(Openai, &[("endpoint", "http://u:p@h")], KEY)).contains("name of a user"));
    assert!(error(&of(Openai, &[], &[("apiKey", "a\nb")])).contains("no header can hold"));
    assert!(error(&of(Openai, &[("dialects", "klingon")], KEY)).contains("dialects"));
    let without = of(Vertexai, &[], KEY);
    let target = Provider::new(&without).unwrap().target(
        Operation::Chat(Dialect::Gemini),
        None,
        "",
        None,
        "m",
        false,
    );
    assert!(target.unwrap_err().to_string().contains("lacks `project` in its config"));
    assert!(Provider::new(&of(PublicModel, &[("endpoint", "http://h")], &[])).is_ok());
    // With two secrets of unknown names, it is not guessed which one is the key.
    assert!(Provider::new(&of(Openai, &[], &[("a", "1"), ("b", "2")])).is_err());
    assert!(Provider::new(&of(Openai, &[], &[("anything", "1")])).is_ok());
}

#[test]
fn models_do_not_lead_up() {
    let provider = Provider::new(&of(ModelType::Gemini, &[], KEY)).unwrap();
    let chat = Operation::Chat(Dialect::Gemini);
    for bad in ["", "..", "a/../b", "a//b", "a\\b", "/a", "a/"] {
        let target = provider.target(chat, None, "", None, bad, false);
        assert_eq!(target, Err(BadProvider::BadModel(bad.into())), "{bad}");
    }
    let target = provider.target(chat, None, "", None, "models/a?b#c:d", false).unwrap();
    assert_eq!(target.url.path(), "/v1beta/models/a%3Fb%23c%3Ad:generateContent");
    let gone = provider.target(Operation::Other, None, "/v1/../x", None, "m", false);
    assert!(matches!(gone, Err(BadProvider::BadPath(_))));
}

#[test]
fn streams_of_gemini_are_events_where_they_are_translated() {
    let provider = Provider::new(&of(ModelType::Gemini, &[], KEY)).unwrap();
    let chat = Operation::Chat(Dialect::OpenAi);
    let url = |stream| {
        let target =
            provider.target(chat, Some(Dialect::Gemini), "/v1/x", Some("beta=1"), "m", stream);
        target.unwrap().url.path_and_query().unwrap().to_string()
    };
    assert_eq!(url(true), "/v1beta/models/m:streamGenerateContent?alt=sse");
    assert_eq!(url(false), "/v1beta/models/m:generateContent");
    let path = "/v1beta/models/m:streamGenerateContent";
    let asked =
        provider.target(Operation::GeminiStream, None, path, Some("alt=sse&key=mine"), "m", true);
    assert_eq!(asked.unwrap().url.query(), Some("alt=sse"));
}

#[test]
fn nothing_of_a_callers_credentials_is_passed_on() {
    let provider = Provider::new(&of(ModelType::Anthropic, &[], KEY)).unwrap();
    let mut headers = HeaderMap::new();
    let callers = [
        ("authorization", "Bearer caller"),
        ("x-blaxel-authorization", "Bearer caller"),
        ("x-service-authorization", "Bearer caller"),
        ("x-api-key", "caller"),
        ("api-key", "caller"),
        ("x-goog-api-key", "caller"),
        ("openai-organization", "caller"),
        ("cookie", "caller"),
        ("proxy-authorization", "caller"),
        ("connection", "x-secret"),
        ("x-secret", "caller"),
        ("transfer-encoding", "chunked"),
        ("host", "caller"),
        ("x-forwarded-for", "caller"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
        ("content-type", "application/json"),
        ("x-stainless-lang", "js"),
    ];
    for (name, value) in callers {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    provider.dresses(&mut headers);
    assert!(
        headers.values().all(|value| !value.to_str().unwrap().contains("caller")),
        "{headers:?}"
    );
    assert_eq!(headers["x-api-key"], "s3cret");
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    assert_eq!(headers.get_all("anthropic-beta").iter().count(), 2);
    assert_eq!(headers.len(), 6, "{headers:?}");
    assert!(!format!("{headers:?} {provider:?}").contains("s3cret"));
    headers.insert("anthropic-version", HeaderValue::from_static("2099-01-01"));
    provider.dresses(&mut headers);
    assert_eq!(headers["anthropic-version"], "2099-01-01");
}

#[test]
fn lists_of_models_are_asked_with_the_key() {
    let request = list_models(&of(ModelType::Groq, &[], KEY)).unwrap();
    assert_eq!(
        (request.method, request.url.as_str()),
        ("GET", "https://api.groq.com/openai/v1/models")
    );
    let key = ("authorization".to_owned(), Sensitive("Bearer s3cret".to_owned()));
    assert!(request.headers.contains(&key), "the key is shown");
    let unsupported =
        list_models(&of(ModelType::AzureAiInference, &[("url", "h")], KEY)).unwrap_err();
    assert!(matches!(unsupported, BadProvider::Unsupported { .. }));
}

#[test]
fn what_is_exchanged_is_never_shown() {
    let oauth = [("CLIENT_ID", "id"), ("CLIENT_SECRET", "s&cret"), ("REFRESH_TOKEN", "r")];
    let none = Provider::new(&of(ModelType::Gemini, &[], &oauth)).unwrap_err();
    assert!(matches!(none, BadProvider::NoToken { .. }));
    let now = Timestamp::from_ms(1_000_000);
    let asked = token_request("gmail", &map(&[]), &map(&oauth), now).unwrap().unwrap();
    assert_eq!(asked.url, "https://oauth2.googleapis.com/token");
    assert_eq!(
        String::from_utf8(asked.body.0).unwrap(),
        "grant_type=refresh_token&client_id=id&client_secret=s%26cret&refresh_token=r"
    );
    assert!(token_request("openai", &map(&[]), &map(&oauth), now).unwrap().is_err());
    let config = map(&[("tokenUrl", "http://127.0.0.1:9/token")]);
    let asked = token_request("openai", &config, &map(&oauth), now).unwrap().unwrap();
    assert_eq!(asked.url, "http://127.0.0.1:9/token");
    assert!(token_request("openai", &config, &map(KEY), now).is_none());
    let mut held = oauth.to_vec();
    held.push((ACCESS_TOKEN, "fresh"));
    let provider = Provider::new(&of(ModelType::Gemini, &[], &held)).unwrap();
    let mut headers = HeaderMap::new();
    provider.dresses(&mut headers);
    assert_eq!(headers["authorization"], "Bearer fresh");
    assert!(!headers.contains_key("x-goog-api-key"));
}

#[test]
fn tokens_are_read() {
    let token =
        read_token(br#"{"access_token":"a","expires_in":"60","refresh_token":"n"}"#).unwrap();
    assert_eq!((token.value.0.as_str(), token.expires_in_s), ("a", 60));
    assert_eq!(token.refresh_token, Some(Sensitive("n".into())));
    assert_eq!(read_token(b"<html>"), Err(BadToken::Unreadable));
    assert_eq!(read_token(b"{}"), Err(BadToken::Unreadable));
    let refused = read_token(br#"{"error":"invalid_grant","error_description":"secret"}"#);
    assert_eq!(refused, Err(BadToken::Refused("invalid_grant".into())));
}

/// A key for tests that another crate uses too, and its public half.
const ACCOUNT_KEY: &str = include_str!("../../../jobs/tests/runners/app_key_for_tests.pem");
const ACCOUNT_MODULUS: &str = "6ABMwLqjH-CyQlQy-o9CcJEFQQBFnXGk_lAExpTqqNxWJGrPoxmJae6S8pLgOfUSWs8lpZR22VCvPqulNH_nGkfweangSYuHK6FBlqdmZcXPH4lAI4og1xwvtTTGn4_iiJVUf8l-GEyTNOB9SecRrqShETySIFF6F1S_2MKPtnLN9A_gJJ-gXkpAG_AbpQfO6BE2w_yWrVm2m-cGynu6JMiEqz7SMUOHujxxRBNgPEB6Sx1q8cv1JiLWguVF0RBeOypGhHyQ3z8x_JPDj4L3R48zeFG6UrJSdlnKklWvTTYtJYxvxQobWGgjQME_N25-ozIMu0qEO7Hr7bl2fxlUVQ";

#[test]
fn a_service_account_shows_what_its_key_signed() {
    let now = Timestamp::from_ms(1_000_000);
    let account = |uri: &str, key: &str| {
        let account = serde_json::json!({"type": "service_account", "private_key": key,
            "client_email": "robot@project.example", "token_uri": uri});
        map(&[("serviceAccount", &account.to_string())])
    };
    let uri = "https://oauth2.googleapis.com/token";
    let asked = token_request("vertexai", &map(&[]), &account(uri, ACCOUNT_KEY), now);
    let asked = asked.unwrap().unwrap();
    assert_eq!(asked.url, uri);
    let form: Vec<(String, String)> = form_urlencoded::parse(&asked.body.0).into_owned().collect();
    assert_eq!(form[0].1, "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let token = jose::Token::parse(&form[1].1).unwrap();
    let public = serde_json::json!({"kty": "RSA", "n": ACCOUNT_MODULUS, "e": "AQAB"});
    let public: jose::PublicKey = serde_json::from_value(public).unwrap();
    assert!(public.verifies(&token), "{:?}", token.header);
    let claims: serde_json::Value = token.claims().unwrap();
    assert_eq!(claims["iss"], "robot@project.example");
    assert_eq!((&claims["aud"], &claims["iat"]), (&uri.into(), &1000.into()));
    assert!(claims["scope"].as_str().unwrap().contains("cloud-platform"), "{claims}");
    let ask = |uri, key| token_request("vertexai", &map(&[]), &account(uri, key), now).unwrap();
    assert!(ask("http://127.0.0.1/token", ACCOUNT_KEY).is_err(), "nothing is shown in plain");
    let refused = ask(uri, "-----BEGIN PRIVATE KEY-----\nno\n-----END PRIVATE KEY-----");
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("private key") && !told.contains("BEGIN"), "{told}");
}

#[test]
fn a_key_file_that_cannot_be_read_is_refused_and_never_sent_as_a_key() {
    for (file, why) in [
        (r#"{"type":"service_account","private_key":"hush"}"#, "lacks `client_email`"),
        (r#"{"client_email":"a@b.example","private_key_id":"hush"}"#, "lacks `private_key`"),
        (r#"{"client_email":7,"private_key":"hush"}"#, "wrong type"),
        ("{\"client_email\":\"a@b.example\",\n\"private_key\":\"hush\"", "line 2"),
    ] {
        let secrets = [("key", file)];
        for kind in [ModelType::Gemini, ModelType::Openai] {
            let told = Provider::new(&of(kind, &[], &secrets)).unwrap_err().to_string();
            assert!(told.contains(why) && !told.contains("hush"), "{told}");
        }
        assert!(is_exchanged(&map(&secrets)), "so that it is asked for, and the reason is told");
        let asked = token_request("vertexai", &map(&[]), &map(&secrets), Timestamp::from_ms(0));
        let told = asked.unwrap().unwrap_err().to_string();
        assert!(told.contains(why) && !told.contains("hush"), "{told}");
    }
}
