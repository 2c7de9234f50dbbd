use super::*;
use proptest::prelude::*;
use serde_json::json;

use Dialect::{Anthropic, Cohere, Gemini, OpenAi, Responses};

fn asked(from: Dialect, to: Dialect, body: &Value) -> (EmbeddingsTranslation, Value) {
    let (translation, written) = translate_request(from, to, body, "m").unwrap();
    (translation, serde_json::from_slice(&written).unwrap())
}

fn answered(translation: &EmbeddingsTranslation, body: &Value) -> Value {
    let written = translation.answer(body.to_string().as_bytes(), 77).unwrap();
    serde_json::from_slice(&written).unwrap()
}

#[test]
fn openais_request_reaches_gemini() {
    let body = json!({
        "model": "mine", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 2,
        "user": "me", "input_type": "query",
    });
    let (translation, written) = asked(OpenAi, Gemini, &body);
    assert_eq!(translation.losses(), ["user"]);
    assert_eq!(
        written["requests"][1],
        json!({
            "model": "models/m", "content": {"parts": [{"text": "b"}]},
            "taskType": "RETRIEVAL_QUERY", "outputDimensionality": 2,
        })
    );
    let answer = json!({"embeddings": [{"values": [0.5, -1]}, {"values": [1e-3, 2.25]}]});
    let written = answered(&translation, &answer);
    // 0.5 and -1 as Python's `struct.pack("<2f", 0.5, -1)` writes them, in base64.
    assert_eq!(written["data"][0]["embedding"], "AAAAPwAAgL8=");
    assert_eq!(written["data"][1]["index"], 1);
    assert_eq!(written["usage"], json!({"prompt_tokens": 77, "total_tokens": 77}));
    assert_eq!(written["model"], "m");
}

#[test]
fn geminis_requests_reach_the_others() {
    let one = json!({
        "content": {"parts": [{"text": "a"}]}, "task_type": "SEMANTIC_SIMILARITY", "title": "A",
    });
    let (translation, written) = asked(Gemini, Cohere, &one);
    assert_eq!(translation.losses(), ["taskType", "title"]);
    assert_eq!(
        written,
        json!({
            "model": "m", "texts": ["a"], "input_type": "search_document",
            "embedding_types": ["float"],
        })
    );
    let answer = json!({
        "embeddings": {"float": [[0.25]]}, "meta": {"billed_units": {"input_tokens": 3.0}},
    });
    assert_eq!(
        answered(&translation, &answer),
        json!({"embedding": {"values": [0.25]}, "usageMetadata": {"promptTokenCount": 3}})
    );

    let request = |text: &str, task: &str| json!({"model": "models/x", "content": {"parts": [{"text": text}]}, "taskType": task});
    let batch = json!({"requests": [request("a", "CLUSTERING"), request("b", "CLUSTERING")]});
    let (translation, written) = asked(Gemini, OpenAi, &batch);
    assert_eq!(written["input"], json!(["a", "b"]));
    assert_eq!(translation.losses(), ["input_type"]);
    let data = json!([
        {"index": 1, "embedding": [2]}, {"index": 0, "embedding": "AAAAPw=="},
    ]);
    let answer = json!({"data": data, "usage": {"prompt_tokens": 5}});
    let values = answered(&translation, &answer)["embeddings"].clone();
    assert_eq!(values, json!([{"values": [0.5]}, {"values": [2]}]), "by the index");

    let mixed = json!({"requests": [request("a", "CLUSTERING"), request("b", "RETRIEVAL_QUERY")]});
    let refused = translate_request(Gemini, OpenAi, &mixed, "m").unwrap_err();
    assert_eq!(refused.at, "requests[1]");
}

#[test]
fn coheres_request_reaches_openai() {
    let body = json!({
        "model": "embed-v4.0", "inputs": [{"content": [{"type": "text", "text": "a"}]}],
        "input_type": "search_query", "embedding_types": ["base64"], "output_dimension": 1,
        "truncate": "END",
    });
    let (translation, written) = asked(Cohere, OpenAi, &body);
    assert_eq!(translation.losses(), ["truncate", "input_type"]);
    assert_eq!(
        written,
        json!({"model": "m", "input": ["a"], "encoding_format": "float", "dimensions": 1})
    );
    let answer = json!({"data": [{"index": 0, "embedding": [0.5]}]});
    let written = answered(&translation, &answer);
    assert_eq!(written["embeddings"], json!({"base64": ["AAAAPw=="]}));
    assert_eq!(written["meta"]["billed_units"]["input_tokens"], 77);
}

#[test]
fn what_cannot_be_said_is_refused() {
    for (from, body, at) in [
        (OpenAi, json!({"input": [1, 2]}), "input"),
        (OpenAi, json!({"input": [[1, 2]]}), "input"),
        (OpenAi, json!({"input": []}), "input"),
        (OpenAi, json!({"input": ["a", null]}), "input[1]"),
        (OpenAi, json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
        (Gemini, json!({"content": {"parts": [{"inlineData": {}}]}}), "content.parts[0]"),
        (Cohere, json!({"images": ["data:"]}), "images"),
        (Cohere, json!({"texts": ["a"], "embedding_types": ["int8"]}), "embedding_types"),
        (Anthropic, json!({}), "body"),
        (Responses, json!({}), "body"),
    ] {
        assert_eq!(translate_request(from, Cohere, &body, "m").unwrap_err().at, at, "{body}");
    }
    let body = json!({"input": "a"});
    assert!(translate_request(OpenAi, Anthropic, &body, "m").is_err());
}

#[test]
fn answers_that_are_none_are_not_passed_on() {
    let (translation, _) = asked(OpenAi, Gemini, &json!({"input": ["a", "b"]}));
    for answer in [
        "",
        "{}",
        r#"{"embeddings": []}"#,
        r#"{"embeddings": [{"values": [1]}]}"#,
        r#"{"embeddings": [{"values": ["x"]}, {"values": [1]}]}"#,
        r#"{"embeddings": [{}, {}]}"#,
    ] {
        assert!(translation.answer(answer.as_bytes(), 0).is_err(), "{answer}");
    }
    let fault = translation.fault(429, br#"{"error": {"message": "Slow down."}}"#);
    let fault: Value = serde_json::from_slice(&fault).unwrap();
    assert_eq!(fault["error"]["message"], "Slow down.");
}

/// A provider whose numbers for a text are made from the text.
fn stand_in(to: Dialect, request: &Value) -> Value {
    let vector = |text: &str| vec![text.len() as f64 / 4.0, -0.125];
    match to {
        Gemini => {
            let of = |one: &Value| {
                let text = one["content"]["parts"][0]["text"].as_str().unwrap();
                json!({"values": vector(text)})
            };
            let list: Vec<_> = request["requests"].as_array().unwrap().iter().map(of).collect();
            json!({"embeddings": list})
        }
        Cohere => {
            let texts = request["texts"].as_array().unwrap();
            let list: Vec<_> = texts.iter().map(|text| vector(text.as_str().unwrap())).collect();
            json!({"embeddings": {"float": list}})
        }
        _ => {
            let of = |(index, text): (usize, &Value)| json!({"index": index, "embedding": vector(text.as_str().unwrap())});
            let texts = request["input"].as_array().unwrap();
            let list: Vec<_> = texts.iter().enumerate().map(of).collect();
            json!({"data": list})
        }
    }
}

proptest! {
    /// Whatever the provider and the form, each text gets its own numbers.
    #[test]
    fn numbers_come_back(
        texts in proptest::collection::vec("\\PC{1,12}", 1..5),
        is_base64: bool,
        to in prop_oneof![Just(OpenAi), Just(Gemini), Just(Cohere)],
    ) {
        let form = if is_base64 { "base64" } else { "float" };
        let body = json!({"input": texts, "encoding_format": form});
        let (translation, written) = asked(OpenAi, to, &body);
        let answer = answered(&translation, &stand_in(to, &written));
        // Read with our own reader, which knows both forms.
        let found = read::answer(OpenAi, &answer).unwrap().vectors;
        let wanted = read::answer(to, &stand_in(to, &written)).unwrap().vectors;
        prop_assert_eq!(found, wanted);
    }
}
