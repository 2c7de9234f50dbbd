//! What becomes of thoughts that a caller got from one provider and sends back with the next request.

use super::*;
use serde_json::json;

fn translated(from: Dialect, to: Dialect, body: &Value, named: Named<'_>) -> (Translation, Value) {
    let (call, written) = Translation::request(from, to, body, named, false).unwrap();
    (call, serde_json::from_slice(&written).unwrap())
}

/// A thought without a proof and the call that came of it, with its result.
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
                {"type": "thinking", "thinking": "Hm.", "signature": proofs::MARK},
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
        // Others refuse the member.
        let (call, written) = told(ModelType::Mistral);
        assert_eq!(call.losses(), ["reasoning"], "{from:?}");
        assert!(written["messages"][1]["reasoning_content"].is_null());
    }
}
