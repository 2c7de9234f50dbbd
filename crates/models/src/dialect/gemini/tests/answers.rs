//! Whole answers, and errors.

use super::*;
use types::models::TokenUsage;

fn answer() -> Value {
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": [
                {"text": "Let me see.", "thought": true},
                {"text": "It is a cat.", "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "pet", "args": {"n": 1}}, "thoughtSignature": "cGV0"},
                {"functionCall": {"name": "pet", "args": {"n": 1}}},
            ]},
            "finishReason": "STOP", "index": 0,
            "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
        }],
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 2, "toolUsePromptTokenCount": 5, "totalTokenCount": 22,
        },
        "modelVersion": "gemini-3-pro", "responseId": "rEsP_1-x",
    })
}

#[test]
fn an_answer_is_read_and_written() {
    let found = Gemini.read_answer(&answer()).unwrap();
    assert_eq!(
        found.usage,
        Some(TokenUsage { input: 15, output: 7, cached: 2, reasoning: 3, ..TokenUsage::default() })
    );
    let choice = &found.choices[0];
    assert_eq!(choice.finish, Finish::ToolCalls);
    let ids: Vec<_> = (choice.parts.iter())
        .filter_map(|part| match &part.content {
            Content::ToolCall(call) => Some(call.id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["call_rEsP1x_0", "call_rEsP1x_1"]);
    assert_eq!(found.others.keys().collect::<Vec<_>>(), ["candidates.safetyRatings"]);

    let again = Gemini.write_answer(&found, &mut Losses::default());
    let again = Gemini.read_answer(&again).unwrap();
    assert_eq!(again.choices, found.choices);
    assert_eq!((again.usage, again.id, again.model), (found.usage, found.id, found.model));
}

#[test]
fn a_blocked_request_has_an_answer() {
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "r"});
    let found = Gemini.read_answer(&blocked).unwrap();
    assert_eq!(found.choices, [Choice { parts: vec![], finish: Finish::Filtered }]);
    for body in [json!({}), json!([]), json!({"candidates": 1}), json!({"error": {"code": 1}})] {
        assert!(Gemini.read_answer(&body).is_err(), "{body}");
    }
}

#[test]
fn a_call_that_is_no_json_is_malformed() {
    let call = ToolCall {
        id: "a".to_owned(),
        name: "f".to_owned(),
        arguments: "{\"x\":".to_owned(),
        signature: None,
    };
    let parts = vec![plain(Content::ToolCall(call))];
    let choices = vec![Choice { parts, finish: Finish::ToolCalls }];
    let written =
        Gemini.write_answer(&Answer { choices, ..Answer::default() }, &mut Losses::default());
    let candidate = &written["candidates"][0];
    assert_eq!(candidate["finishReason"], "MALFORMED_FUNCTION_CALL");
    assert_eq!(candidate["finishMessage"], "Malformed function call: f({\"x\":)");
}

#[test]
fn errors_are_googles() {
    let body = br#"[{"error": {"code": 400, "message": "API key not valid.",
        "status": "INVALID_ARGUMENT", "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}}]"#;
    let fault = Gemini.read_fault(400, body);
    assert_eq!(fault.code.as_deref(), Some("API_KEY_INVALID"));
    assert_eq!(fault.kind.as_deref(), Some("INVALID_ARGUMENT"));
    assert_eq!(Gemini.read_fault(502, b"<html>").message, "<html>");
    let fault = Fault {
        status: 429,
        kind: Some("rate_limit_error".to_owned()),
        code: Some("MODEL_LIMIT_REACHED".to_owned()),
        parameter: Some("contents".to_owned()),
        message: "Too much.".to_owned(),
    };
    let written = Gemini.write_fault(&fault);
    assert_eq!(written["error"]["status"], "RESOURCE_EXHAUSTED");
    let again = Gemini.read_fault(429, written.to_string().as_bytes());
    assert_eq!(again, Fault { kind: Some("RESOURCE_EXHAUSTED".to_owned()), ..fault });
}
