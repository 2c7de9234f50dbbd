//! Tests of the thoughts that a caller got from one provider and sends back with the next request.

use super::*;
use crate::dialect::proof_mark::MARK;
use serde_json::json;

fn translated(from: Dialect, to: Dialect, body: &Value, named: Named<'_>) -> (Translation, Value) {
    let (call, written) = Translation::request(from, to, body, named, false).unwrap();
    (call, serde_json::from_slice(&written).unwrap())
}

/// A conversation with a thought without a proof, the call after it, and the call's result.
fn unproven(from: Dialect) -> Value {
    match from {
        Dialect::Responses => json!({"input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
        ]}),
        Dialect::Gemini => json!({"contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [
                {"text": "Hm.", "thought": true},
                {"functionCall": {"id": "c1", "name": "look", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "a cat"}}},
            ]},
        ]}),
        _ => json!({"max_tokens": 9, "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": MARK},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "a cat"},
            ]},
        ]}),
    }
}

#[test]
fn deepseek_gets_its_thoughts_back() {
    for from in [Dialect::Anthropic, Dialect::Responses, Dialect::Gemini] {
        let told = |provider| {
            let named = Named { model: "deepseek-reasoner", provider: Some(provider) };
            translated(from, Dialect::OpenAi, &unproven(from), named)
        };
        let (call, written) = told(ModelType::Deepseek);
        assert_eq!(call.losses(), Vec::<String>::new(), "{from:?}");
        let turn = &written["messages"][1];
        assert_eq!(turn["reasoning_content"], "Hm.", "{from:?}: {written}");
        assert_eq!(turn["tool_calls"][0]["id"], "c1", "{from:?}: {written}");
        // Other providers refuse the member.
        let (call, written) = told(ModelType::Mistral);
        assert_eq!(call.losses(), ["reasoning"], "{from:?}");
        assert!(written["messages"][1]["reasoning_content"].is_null());
    }
}

/// A caller of Messages whose model is Gemini sends back the proofs, which Gemini keeps on the
/// calls.
#[test]
fn gemini_gets_the_proofs_of_its_calls_back() {
    let named = || Named { model: "gemini-3-pro", provider: Some(ModelType::Gemini) };
    let first = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let answer = json!({"responseId": "r", "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
        {"functionCall": {"id": "c1", "name": "look", "args": {}}, "thoughtSignature": "c2lnbmVk"},
    ]}}]});
    let (from, to) = (Dialect::Anthropic, Dialect::Gemini);
    let whole = {
        let (call, _) = translated(from, to, &first, named());
        let told = call.answer(answer.to_string().as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&told).unwrap()["content"].clone()
    };
    let streamed = {
        let (call, _) = Translation::request(from, to, &first, named(), true).unwrap();
        let (mut stream, mut out) = (call.stream(), BytesMut::new());
        stream.push(format!("data: {answer}\n\n").as_bytes(), &mut out).unwrap();
        stream.end(&mut out).unwrap();
        let told = String::from_utf8(out.to_vec()).unwrap();
        let signature = told.split("\"signature\":\"").find(|rest| !rest.starts_with('"'));
        assert!(told.contains("signature_delta") && signature.is_some(), "{told}");
        told
    };
    let proof = whole[0]["signature"].as_str().unwrap();
    assert!(streamed.contains(proof), "the same as in the whole answer: {streamed}");
    assert_eq!((&whole[0]["type"], &whole[1]["type"]), (&"thinking".into(), &"tool_use".into()));
    let next = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": whole},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a cat"}]},
    ]});
    let (call, written) = translated(from, to, &next, named());
    assert_eq!(call.losses(), Vec::<String>::new());
    let turn = &written["contents"][1]["parts"];
    assert_eq!(turn[0]["functionCall"]["name"], "look", "{written}");
    assert_eq!(turn[0]["thoughtSignature"], "c2lnbmVk", "{written}");
}

/// A thought without a proof gets a mark without one, so that it is not taken for proven.
#[test]
fn thoughts_without_a_proof_are_told_with_a_mark() {
    let first = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let named = || Named { model: "deepseek-reasoner", provider: Some(ModelType::Deepseek) };
    let message = json!({"role": "assistant", "reasoning_content": "Hm.", "content": "so"});
    let chunk = |delta: &Value, end: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": end});
        format!("data: {}\n\n", json!({"id": "1", "choices": [choice]}))
    };
    let (call, _) = translated(Dialect::Anthropic, Dialect::OpenAi, &first, named());
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let answer = json!({"id": "1", "choices": [choice]}).to_string();
    let told = String::from_utf8(call.answer(answer.as_bytes()).unwrap()).unwrap();
    assert!(told.contains(MARK), "{told}");
    let (call, _) =
        Translation::request(Dialect::Anthropic, Dialect::OpenAi, &first, named(), true).unwrap();
    let (mut stream, mut out) = (call.stream(), BytesMut::new());
    let events = chunk(&message, Value::Null) + &chunk(&json!({}), "stop".into());
    stream.push(events.as_bytes(), &mut out).unwrap();
    stream.end(&mut out).unwrap();
    let told = String::from_utf8(out.to_vec()).unwrap();
    assert!(told.contains(MARK), "{told}");
}
