//! Tests with answers as providers document them.

use super::*;
use crate::dialect::Dialect;
use crate::operation::Operation;
use proptest::prelude::*;
use types::models::TokenUsage;

fn usage(input: u64, output: u64, cached: u64, cache_written: u64, reasoning: u64) -> TokenUsage {
    TokenUsage { input, output, cached, cache_written, reasoning, ..TokenUsage::default() }
}

fn seen(dialect: Dialect, text: &str, cut: usize) -> Seen {
    let mut reader = UsageReader::new(dialect, Operation::Chat(dialect), true);
    let (one, two) = text.as_bytes().split_at(cut.min(text.len()));
    reader.push(one);
    reader.push(two);
    reader.finish()
}

const OPENAI: &str = concat!(
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello \\\"wo\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    ": ping\n\n",
    "data: {\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"rld\\\"\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n",
    "data: {\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
    "data: {\"model\":\"gpt-4o-2024-08-06\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":9,\"total_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":5,\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":3,\"audio_tokens\":0}}}\n\n",
    "data: [DONE]\n\n",
);

const ANTHROPIC: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":7,\"cache_read_input_tokens\":11,\"cache_creation\":{\"ephemeral_5m_input_tokens\":7},\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"{\\\"usage\\\":{\\\"output_tokens\\\":999999}}\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const GEMINI: &str = concat!(
    "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Once\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"candidatesTokenCount\": 1,\"totalTokenCount\": 30,\"thoughtsTokenCount\": 21},\"modelVersion\": \"gemini-2.5-pro\"}\r\n\r\n",
    "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \" upon a time\"}],\"role\": \"model\"},\"finishReason\": \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"candidatesTokenCount\": 4,\"totalTokenCount\": 33,\"cachedContentTokenCount\": 2,\"thoughtsTokenCount\": 21},\"modelVersion\": \"gemini-2.5-pro\"}\r\n\r\n",
);

const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"gpt-5\",\"output\":[],\"usage\":null}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\" world\"}\n\n",
    "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"text\":\"hello world\"}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"model\":\"gpt-5\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hello world\"}]}],\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":6},\"total_tokens\":48}}}\n\n",
);

const COHERE: &str = concat!(
    "event: message-start\ndata: {\"id\":\"x\",\"type\":\"message-start\",\"delta\":{\"message\":{\"role\":\"assistant\",\"content\":[],\"tool_plan\":\"\",\"tool_calls\":[]}}}\n\n",
    "event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":{\"text\":\"hello world\"}}}}\n\n",
    "event: message-end\ndata: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"COMPLETE\",\"usage\":{\"billed_units\":{\"input_tokens\":5,\"output_tokens\":2},\"tokens\":{\"input_tokens\":71,\"output_tokens\":3}}}}\n\n",
);

fn streams() -> [(Dialect, &'static str, TokenUsage, Option<&'static str>); 5] {
    [
        (Dialect::OpenAi, OPENAI, usage(20, 9, 5, 0, 3), Some("gpt-4o-2024-08-06")),
        (Dialect::Anthropic, ANTHROPIC, usage(43, 15, 11, 7, 0), Some("claude-sonnet-4-5")),
        (Dialect::Gemini, GEMINI, usage(8, 25, 2, 0, 21), Some("gemini-2.5-pro")),
        (Dialect::Responses, RESPONSES, usage(37, 11, 4, 0, 6), Some("gpt-5")),
        (Dialect::Cohere, COHERE, usage(5, 2, 0, 0, 0), None),
    ]
}

#[test]
fn streams_say_what_they_used() {
    for (dialect, stream, wanted, model) in streams() {
        let seen = seen(dialect, stream, 0);
        assert_eq!(seen.usage, Some(wanted), "{dialect:?}");
        assert!(seen.finished, "{dialect:?}");
        assert_eq!(seen.model.as_deref(), model);
        assert_eq!(seen.settle("m", || unreachable!("the provider said it")), wanted);
    }
}

#[test]
fn what_is_cut_is_counted_here() {
    for (dialect, stream, whole, _) in streams() {
        let last = stream.trim_end().rfind("\n\n").or(stream.trim_end().rfind("\r\n\r\n")).unwrap();
        // Without the event that ends it; for OpenAI also without the event before.
        let cut = match dialect {
            Dialect::OpenAi => stream
                .find(
                    "data: {\"model\":\"gpt-4o-2024-08-06\",\"choices\":[{\"index\":0,\"delta\":{}",
                )
                .unwrap(),
            Dialect::Anthropic => stream.find("event: message_delta").unwrap(),
            _ => last,
        };
        let seen = seen(dialect, &stream[..cut], 0);
        assert_eq!((seen.usage, seen.finished), (None, false), "{dialect:?}");
        let settled = seen.settle("gpt-4o", || 40);
        assert!(settled.estimated);
        assert!(settled.output > 0 && settled.output <= 40, "{dialect:?} {settled:?}");
        let said = match dialect {
            Dialect::Anthropic | Dialect::Gemini => whole.input,
            _ => 40,
        };
        assert_eq!(settled.input, said, "{dialect:?}");
    }
    // What is repeated at the end counts once.
    let cut = RESPONSES.find("event: response.completed").unwrap();
    assert_eq!(seen(Dialect::Responses, &RESPONSES[..cut], 0).settle("m", || 1).output, 2);
}

#[test]
fn a_stream_that_counts_as_it_goes_is_no_whole_one() {
    let chunk = |text: &str, finish: &str, output: u64| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{output},\"total_tokens\":{}}}}}\n\n",
            output + 5
        )
    };
    let cut = chunk("hello", "null", 1) + &chunk(" world", "null", 2);
    let part = seen(Dialect::OpenAi, &cut, 0);
    assert_eq!((part.usage, part.partial), (None, usage(5, 2, 0, 0, 0)));
    let whole = cut + &chunk("", "\"stop\"", 2);
    assert_eq!(seen(Dialect::OpenAi, &whole, 0).usage, Some(usage(5, 2, 0, 0, 0)));
}

#[test]
fn bodies_say_what_they_used() {
    let body = |dialect: Dialect, text: &str| {
        let mut reader = UsageReader::new(dialect, Operation::Chat(dialect), false);
        text.as_bytes().chunks(3).for_each(|piece| reader.push(piece));
        reader.finish()
    };
    let openai = r#"{"model":"m","choices":[{"message":{"content":"hello world","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#;
    assert_eq!(body(Dialect::OpenAi, openai).usage, Some(usage(1, 2, 0, 0, 0)));
    // xAI does not count reasoning as output.
    let xai = r#"{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":45,"completion_tokens_details":{"reasoning_tokens":30}}}"#;
    assert_eq!(body(Dialect::OpenAi, xai).usage, Some(usage(10, 35, 0, 0, 30)));
    let none = openai.split(",\"usage\"").next().unwrap().to_owned() + "}";
    let seen = body(Dialect::OpenAi, &none);
    assert_eq!((seen.usage, seen.finished), (None, true));
    assert!(seen.settle("gpt-4o", || 7).output >= 3);
    // The input of a tool may contain anything.
    let anthropic = r#"{"type":"message","model":"c","content":[{"type":"tool_use","name":"f","input":{"usage":{"output_tokens":99},"x":"hello world"}}],"usage":{"input_tokens":3,"output_tokens":4}}"#;
    assert_eq!(body(Dialect::Anthropic, anthropic).usage, Some(usage(3, 4, 0, 0, 0)));
    let cut =
        body(Dialect::Anthropic, anthropic.split(",\"usage\":{\"input_tokens\"").next().unwrap());
    assert_eq!((cut.usage, cut.finished), (None, false));
    let kept_long = r#"{"type":"message","model":"c","content":[],"usage":{"input_tokens":3,"output_tokens":4,"cache_creation_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":8,"ephemeral_1h_input_tokens":12},"output_tokens_details":{"thinking_tokens":2}}}"#;
    let hour = TokenUsage { cache_written_hour: 12, ..usage(23, 4, 0, 20, 2) };
    assert_eq!(body(Dialect::Anthropic, kept_long).usage, Some(hour));
    let written = r#"{"object":"chat.completion","model":"g","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5,"cache_write_tokens":20}}}"#;
    assert_eq!(body(Dialect::OpenAi, written).usage, Some(usage(30, 4, 5, 20, 0)));
    let cohere = r#"{"id":"x","message":{"role":"assistant","content":[{"type":"text","text":"hi"}]},"usage":{"billed_units":{"input_tokens":1,"output_tokens":2}}}"#;
    assert_eq!(body(Dialect::Cohere, cohere).usage, Some(usage(1, 2, 0, 0, 0)));
    assert_eq!(body(Dialect::OpenAi, "<html>502</html>").usage, None);
    let error = body(Dialect::OpenAi, r#"{"error":{"message":"no"}}"#);
    assert_eq!((error.usage, error.text_bytes(), error.finished), (None, 0, true));
}

#[test]
fn lists_in_place_of_events_are_read() {
    let events: Vec<&str> =
        GEMINI.split("\r\n\r\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let list = format!("[{}]", events.join(",\r\n"));
    let whole = seen(Dialect::Gemini, &list, 50);
    assert_eq!((whole.usage, whole.finished), (Some(usage(8, 25, 2, 0, 21)), true));
    let cut = seen(Dialect::Gemini, &format!("[{},", events[0]), 0);
    assert_eq!((cut.usage, cut.finished), (None, false));
}

#[test]
fn a_question_that_is_blocked_has_input_alone() {
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":8,\"totalTokenCount\":8}}\n\n";
    let seen = seen(Dialect::Gemini, blocked, 0);
    assert_eq!((seen.usage, seen.finished), (Some(usage(8, 0, 0, 0, 0)), true));
}

#[test]
fn embeddings_have_input_alone() {
    let mut reader =
        UsageReader::new(Dialect::OpenAi, Operation::Embeddings(Dialect::OpenAi), false);
    reader.push(br#"{"data":[{"embedding":[0.1,-2e-3]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#);
    assert_eq!(reader.finish().usage, Some(usage(8, 0, 0, 0, 0)));
    let mut reader =
        UsageReader::new(Dialect::Cohere, Operation::Embeddings(Dialect::Cohere), false);
    reader.push(br#"{"embeddings":{"float":[[1.5]]},"meta":{"billed_units":{"input_tokens":6}}}"#);
    assert_eq!(reader.finish().usage, Some(usage(6, 0, 0, 0, 0)));
}

#[test]
fn no_answer_takes_more_memory_than_another() {
    let mut reader = UsageReader::new(Dialect::OpenAi, Operation::Chat(Dialect::OpenAi), true);
    reader.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"");
    (0..100_000).for_each(|_| reader.push(b"never ends "));
    let seen = reader.finish();
    assert_eq!(seen.text_bytes(), 1_100_000);
    let counted = seen.settle("gpt-4o", || 0).output;
    assert!(counted.abs_diff(200_000) < 20_000, "{counted}");
}

#[test]
fn numbers_out_of_all_measure_add_up() {
    let big = u64::MAX;
    let text = format!(
        "{{\"usage\":{{\"input_tokens\":{big}9,\"output_tokens\":{big},\"cache_read_input_tokens\":{big},\"cache_creation_input_tokens\":-5}}}}"
    );
    let usage = seen(Dialect::Anthropic, &text, 0).usage.unwrap();
    assert!(usage.total() < u64::MAX / 1000);
}

#[test]
fn usage_with_an_exponent_is_counted_as_it_is_meant() {
    let answer = r#"{"choices":[],"usage":{"prompt_tokens":1e3,"completion_tokens":1.5e3,"total_tokens":25E2}}"#;
    assert_eq!(seen(Dialect::OpenAi, answer, 0).usage, Some(usage(1000, 1500, 0, 0, 0)));
    let answer = r#"{"choices":[],"usage":{"prompt_tokens":1e400}}"#;
    assert_eq!(seen(Dialect::OpenAi, answer, 0).usage, None);
}

#[test]
fn usage_below_zero_is_estimated() {
    let usage = r#""usage":{"prompt_tokens":-1,"completion_tokens":-1,"total_tokens":-2}"#;
    let choice = r#"{"index":0,"message":{"content":"hello world"},"finish_reason":"stop"}"#;
    let answer = format!("{{\"choices\":[{choice}],{usage}}}");
    let seen = seen(Dialect::OpenAi, &answer, 0);
    assert_eq!(seen.usage, None);
    let counted = seen.settle("gpt-4o", || 7);
    assert_eq!((counted.input, counted.output, counted.estimated), (7, 2, true));
}

#[test]
fn bounds_are_above_what_is_counted() {
    let text = br#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"hello"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"type":{"type":"string"}}}}}],"stream":true,"max_tokens":5,"previous_response_id":null}"#;
    let bound = input_bound(text);
    assert!(bound < text.len() as u64 + 3000, "{bound}");
    let about = input_estimate("gpt-4o", text);
    assert!((5..60).contains(&about), "{about}");
    let agent = br#"{"input":[{"role":"user","content":"hi"},{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAAAA"},{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"ok"},{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]}]}"#;
    assert!(input_bound(agent) < agent.len() as u64 + 3000, "items that hold what they mean");
    let image = br#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}"#;
    assert!(input_bound(image) > IMAGE_TOKENS_MAX && input_bound(image) < 2 * IMAGE_TOKENS_MAX);
    assert!(input_estimate("m", image) >= 1000);
    let inline = br#"{"contents":[{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"iVBO"}}]}]}"#;
    assert!(input_bound(inline) > IMAGE_TOKENS_MAX && input_bound(inline) < 2 * IMAGE_TOKENS_MAX);
}

#[test]
fn what_leads_elsewhere_has_no_bound() {
    for body in [
        r#"{"input":"hi","previous_response_id":"r"}"#,
        r#"{"input":"hi","prompt":{"id":"p"}}"#,
        r#"{"input":"hi","conver\u0073ation":"c"}"#,
        r#"{"input":"hi","tools":[{"type":"web_search"}]}"#,
        r#"{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}"#,
        r#"{"input":[{"type":"item_reference","id":"f"}]}"#,
        r#"{"input":[{"id":"msg_1"},{"role":"user","content":"go on"}]}"#,
        r#"{"input":[{"role":"user","content":"go on"},{"id":"msg_1","content":null}]}"#,
        r#"{"input":[{"id":"rs_1","type":"reasoning","summary":[]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"document"}]}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}"#,
        r#"{"messages":[{"role":"assistant","audio":{"id":"a"}}]}"#,
        r#"{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#,
        r#"{"messages":[],"mcp_servers":[{}]}"#,
        r#"{"Messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"contents":[{"parts":[{"fileData":{"fileUri":"x"}}]}]}"#,
        r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"video/mp4","data":""}}]}]}"#,
        r#"{"contents":[],"tools":[{"googleSearch":{}}]}"#,
        r#"{"contents":[],"cachedContent":"c"}"#,
        r#"{"messages":[]"#,
        "nonsense",
        "",
    ] {
        assert_eq!(input_bound(body.as_bytes()), u64::MAX, "{body}");
    }
}

proptest! {
    /// The result is the same however a stream is cut into pieces.
    #[test]
    fn pieces_do_not_matter(which in 0..5_usize, cut in 0..2000_usize, size in 1..40_usize) {
        let (dialect, stream, wanted, _) = streams()[which];
        prop_assert_eq!(seen(dialect, stream, cut).usage, Some(wanted));
        let mut reader = UsageReader::new(dialect, Operation::Chat(dialect), true);
        stream.as_bytes().chunks(size).for_each(|piece| reader.push(piece));
        prop_assert_eq!(reader.finish().usage, Some(wanted));
    }

    /// A stream that is cut anywhere is settled, with not much more output than the whole one.
    #[test]
    fn every_cut_is_settled(which in 0..5_usize, cut in 0..2000_usize) {
        let (dialect, stream, wanted, _) = streams()[which];
        let cut = &stream[..cut.min(stream.len())];
        let settled = seen(dialect, cut, 0).settle("gpt-4o", || 40);
        prop_assert!(settled.output <= wanted.output.max(30));
        prop_assert!(settled.input > 0);
    }

    /// The estimate for a text is never above the bound of a request that contains it.
    #[test]
    fn bounds_hold_for_any_text(text: String, n in 0..5_usize) {
        let messages = vec![serde_json::json!({"role": "user", "content": text}); n];
        let body = serde_json::json!({"messages": messages, "model": "m"}).to_string();
        let counted = (estimate("gpt-4o", &text) + 4) * n as u64 + 3;
        prop_assert!(counted <= input_bound(body.as_bytes()));
        prop_assert!(input_estimate("gpt-4o", body.as_bytes()) <= input_bound(body.as_bytes()));
    }

    #[test]
    fn nonsense_does_no_harm(bytes: Vec<u8>, which in 0..5_usize) {
        let (dialect, stream, ..) = streams()[which];
        let mut reader = UsageReader::new(dialect, Operation::Chat(dialect), true);
        reader.push(stream.as_bytes().get(..bytes.len()).unwrap_or_default());
        reader.push(&bytes);
        reader.finish().settle("m", || 0);
        input_bound(&bytes);
        input_estimate("m", &bytes);
    }
}
