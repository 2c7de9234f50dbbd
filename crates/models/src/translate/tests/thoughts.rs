//! Thoughts of models, and the proofs by which their makers know them again.

use super::*;

#[test]
fn thoughts_go_through_a_caller_and_back_to_their_maker() {
    let (call, _) = claude(&hello());
    let answer = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "Eq8B+/=="},
            {"type": "redacted_thinking", "data": "EmwK"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}},
        ],
        "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4},
    });
    let told: Value =
        serde_json::from_slice(&call.answer(answer.to_string().as_bytes()).unwrap()).unwrap();
    let message = &told["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Hm.");
    assert!(!message.to_string().contains("Eq8B"));
    let mut next = hello();
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    messages.push(json!({"role": "tool", "tool_call_id": "toolu_1", "content": "a cat"}));
    assert!(has_proofs(next.to_string().as_bytes()));
    next["reasoning_effort"] = json!("low");
    next["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let (call, written) = claude(&next);
    assert_eq!(call.losses(), Vec::<String>::new());
    assert_eq!(written["messages"][1]["content"], answer["content"]);
    assert_eq!(written["thinking"]["budget_tokens"], 2048);
    // Another provider does not get the proof, which it could not open.
    let (call, written) =
        Translation::request(Dialect::OpenAi, Dialect::Responses, &next, "gpt-5", false).unwrap();
    assert_eq!(call.losses(), ["reasoning.signature", "reasoning"]);
    assert!(!has_proofs(&written));
    // Neither does one that is called in the caller's own dialect.
    let losses = open_in_place(Dialect::OpenAi, &mut next);
    assert_eq!(losses, ["reasoning.signature"]);
    assert_eq!(next["messages"][1]["thinking_blocks"], json!([]));
    assert!(!has_proofs(next.to_string().as_bytes()));
}

#[test]
fn who_has_not_proven_a_thought_does_not_think_between_calls() {
    let mut body = hello();
    body["reasoning_effort"] = json!("high");
    body["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c:1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]}));
    messages.push(json!({"role": "tool", "tool_call_id": "c:1", "content": "a cat"}));
    let (call, written) = claude(&body);
    assert_eq!(call.losses(), ["reasoning"]);
    assert!(written["thinking"].is_null());
    assert_eq!(written["messages"][1]["content"][0]["id"], "c_1");
    assert_eq!(written["messages"][2]["content"][0]["tool_use_id"], "c_1");
}

#[test]
fn a_proof_is_opened_in_a_body_that_is_passed_on() {
    let (made, told) = (Dialect::Anthropic, Dialect::Responses);
    let mut delta =
        Delta::ReasoningProof { choice: 0, signature: Some("c2ln".to_owned()), sealed: None };
    proofs::seal_delta(&mut delta, made);
    let Delta::ReasoningProof { signature: Some(proof), .. } = delta else { panic!() };
    let block = |proof: &str| {
        json!({"messages": [
            {"role": "user", "content": proof},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": proof},
                {"type": "text", "text": "Hi"},
            ]},
        ]})
    };
    let mut same = block(&proof);
    assert_eq!(open_in_place(made, &mut same), Vec::<String>::new());
    assert_eq!(same["messages"][1]["content"][0]["signature"], "c2ln");
    let mut other = block(&proof);
    assert_eq!(open_in_place(told, &mut other), ["reasoning.signature"]);
    // The text of the caller stays as it is.
    assert_eq!(other["messages"][0]["content"], proof);
    assert_eq!(other["messages"][1]["content"], json!([{"type": "text", "text": "Hi"}]));
    let mut call = json!({"tool_calls": [{"id": "a", "signature": proof}]});
    assert_eq!(open_in_place(told, &mut call), ["tool_call.signature"]);
    assert_eq!(call, json!({"tool_calls": [{"id": "a"}]}));
}

#[test]
fn a_thought_without_a_proof_is_not_passed_on() {
    let mut body = json!({"messages": [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "aG9sbTE6"},
        {"type": "text", "text": "Hi"},
    ]}]});
    assert!(has_proofs(body.to_string().as_bytes()));
    assert_eq!(open_in_place(Dialect::Anthropic, &mut body), ["reasoning.signature"]);
    assert_eq!(body["messages"][0]["content"], json!([{"type": "text", "text": "Hi"}]));
}
