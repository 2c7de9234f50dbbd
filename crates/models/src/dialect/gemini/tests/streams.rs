//! Streams, as events and as the list of a client that does not ask for events.

use super::super::array::{ListWriter, Pieces};
use super::*;
use crate::events::Events;
use bytes::BytesMut;
use types::models::TokenUsage;

fn deltas(stream: &str) -> Vec<Delta> {
    let (mut reader, mut deltas, mut events) = (Gemini.reader(), Vec::new(), Events::new(1 << 20));
    events.push(stream.as_bytes(), |event| reader.read(&event, &mut deltas).unwrap()).unwrap();
    reader.end(&mut deltas).unwrap();
    deltas
}

fn written(deltas: &[Delta]) -> String {
    let (mut writer, mut out) = (Gemini.writer(&Chat::default()), BytesMut::new());
    deltas.iter().for_each(|delta| writer.write(delta, &mut out));
    String::from_utf8(out.to_vec()).unwrap()
}

/// A stream as older models send it: each piece says that it is the last.
const STREAM: &str = concat!(
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":"It","thought":true}]},"#,
    r#""finishReason":"STOP","index":0}],"modelVersion":"g","responseId":"r1"}"#,
    "\r\n\r\n",
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":" is"}]},"finishReason":"STOP"}],"#,
    r#""usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}}"#,
    "\r\n\r\n",
    r#"data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"#,
    r#""thoughtSignature":"cw=="}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"#,
    r#""candidatesTokenCount":9}}"#,
    "\r\n\r\n",
);

fn stream_deltas() -> Vec<Delta> {
    vec![
        Delta::Begin { id: "r1".to_owned(), model: "g".to_owned(), created: None },
        Delta::Reasoning { choice: 0, text: "It".to_owned() },
        Delta::Text { choice: 0, text: " is".to_owned() },
        Delta::ToolBegin {
            choice: 0,
            part: 0,
            id: "call_r1_0".to_owned(),
            name: "f".to_owned(),
            signature: Some("cw==".to_owned()),
        },
        Delta::ToolArguments { choice: 0, part: 0, text: "{}".to_owned() },
        Delta::Finish { choice: 0, finish: Finish::ToolCalls },
        Delta::Usage(TokenUsage { input: 3, output: 9, ..TokenUsage::default() }),
        Delta::End,
    ]
}

#[test]
fn a_stream_is_read_and_written() {
    assert_eq!(deltas(STREAM), stream_deltas());
    assert_eq!(deltas(&written(&stream_deltas())), stream_deltas());
}

#[test]
fn a_stream_without_a_reason_for_its_end_was_cut() {
    let cut = r#"data: {"candidates":[{"content":{"parts":[{"text":"It"}]}}]}"#;
    assert!(!deltas(&format!("{cut}\n\n")).contains(&Delta::End));
    let error = r#"data: {"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}"#;
    let found = deltas(&format!("{cut}\n\n{error}\n\n"));
    assert!(matches!(found.last(), Some(Delta::Fault(fault)) if fault.status == 503), "{found:?}");
    let blocked = deltas("data: {\"promptFeedback\":{\"blockReason\":\"OTHER\"}}\n\n");
    assert!(blocked.contains(&Delta::Finish { choice: 0, finish: Finish::Filtered }));
}

#[test]
fn a_stream_ends_where_arguments_have_no_end() {
    let (mut writer, mut out) = (Gemini.writer(&Chat::default()), BytesMut::new());
    let begin = Delta::ToolBegin {
        choice: 0,
        part: 0,
        id: "a".to_owned(),
        name: "f".to_owned(),
        signature: None,
    };
    writer.write(&begin, &mut out);
    let more = Delta::ToolArguments { choice: 0, part: 0, text: "x".repeat(1 << 20) };
    (0..64).for_each(|_| writer.write(&more, &mut out));
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
}

#[test]
fn a_list_has_the_pieces_of_the_events() {
    let events = written(&[
        Delta::Begin { id: "r".to_owned(), model: "g".to_owned(), created: None },
        Delta::Text { choice: 0, text: "a \"}{\" b".to_owned() },
        Delta::Ping,
        Delta::Text { choice: 0, text: "\\".to_owned() },
        Delta::Finish { choice: 0, finish: Finish::Length },
        Delta::End,
    ]);
    let (mut list, mut out) = (ListWriter::new(1 << 20), BytesMut::new());
    list.push(events.as_bytes(), &mut out).unwrap();
    list.end(&mut out);
    let pieces: Vec<Value> = serde_json::from_slice(&out).unwrap();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[0]["candidates"][0]["content"]["parts"][0]["text"], "a \"}{\" b");
    let mut empty = BytesMut::new();
    ListWriter::new(9).end(&mut empty);
    assert_eq!(&empty[..], b"[]");

    let mut endless = Pieces::new(16);
    assert!(endless.push(b"[{\"a\": \"0123456789", |_| {}).is_err());
}

proptest! {
    /// The pieces are the same however the bytes are cut.
    #[test]
    fn lists_can_be_cut(texts in proptest::collection::vec("[ -~]{0,9}", 0..5), at in 0usize..200) {
        let list: Vec<_> = texts.iter().map(|text| json!({"text": text, "b": {"{": "}"}})).collect();
        let bytes = serde_json::to_vec_pretty(&list).unwrap();
        let (one, two) = bytes.split_at(at.min(bytes.len()));
        let (mut pieces, mut found) = (Pieces::new(1 << 16), Vec::<Value>::new());
        for bytes in [one, two] {
            pieces.push(bytes, |piece| found.push(serde_json::from_str(piece).unwrap())).unwrap();
        }
        prop_assert_eq!(found, list);
    }
}
