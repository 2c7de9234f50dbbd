//! Streams as they are: cut, without bounds, with errors and nonsense in them.

use super::*;

const START: &str = concat!(
    "event: message_start\n",
    r#"data: {"type":"message_start","message":{"id":"msg_1","model":"claude","#,
    r#""usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":1}}}"#,
    "\n\nevent: content_block_start\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    "\n\nevent: content_block_delta\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#,
    "\n\n",
);

#[test]
fn a_cut_stream_is_an_error_in_the_stream() {
    let (mut stream, mut out) = (claude(&hello()).0.stream(), BytesMut::new());
    stream.push(START.as_bytes(), &mut out).unwrap();
    assert!(stream.end(&mut out).is_err());
    let found = chunks(&out);
    assert_eq!(found[1]["choices"][0]["delta"]["content"], "Hel");
    let last = found.last().unwrap();
    assert_eq!(last["error"]["type"], "server_error");
    assert!(last["error"]["message"].as_str().unwrap().contains("ended in the middle"));
    assert_eq!(stream.usage.unwrap().input, 7);
    assert_eq!(stream.fault().unwrap().status, 502);
    // The error is written once, and nothing after it.
    let length = out.len();
    stream.end(&mut out).unwrap();
    stream.push(START.as_bytes(), &mut out).unwrap();
    assert_eq!(out.len(), length);
}

#[test]
fn an_error_in_the_middle_keeps_its_meaning() {
    let (mut stream, mut out) = (claude(&hello()).0.stream(), BytesMut::new());
    stream.push(START.as_bytes(), &mut out).unwrap();
    let event = concat!(
        "event: error\n",
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        "\n\n",
    );
    stream.push(event.as_bytes(), &mut out).unwrap();
    assert!(stream.is_over());
    stream.end(&mut out).unwrap();
    let error = &chunks(&out).pop().unwrap()["error"];
    assert_eq!((&error["message"], &error["type"]), (&json!("Overloaded"), &json!("server_error")));
    assert_eq!(stream.fault().unwrap().status, 529);
}

#[test]
fn the_last_line_may_be_missing() {
    let end = concat!(
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        "\n\n",
        r#"data: {"type":"message_stop"}"#,
    );
    // The last event may be missing too, once the reason for the end is known.
    for cut in ["", r#"data: {"type":"message_stop"}"#] {
        let (mut stream, mut out) = (claude(&hello()).0.stream(), BytesMut::new());
        stream.push(START.as_bytes(), &mut out).unwrap();
        stream.push(end.strip_suffix(cut).unwrap().as_bytes(), &mut out).unwrap();
        stream.end(&mut out).unwrap();
        assert_eq!(chunks(&out).pop().unwrap(), "[DONE]");
    }
    let (mut stream, mut out) = (claude(&hello()).0.stream(), BytesMut::new());
    stream.push(&end.as_bytes()[..end.len() - 4], &mut out).unwrap();
    assert!(stream.end(&mut out).is_err());
}

#[test]
fn a_stream_has_bounds() {
    let bounds = Bounds { event: 200, answer: 1 << 20 };
    let (mut stream, mut out) = (claude(&hello()).0.bounded(bounds).stream(), BytesMut::new());
    assert!(stream.push(&[b'x'; 300], &mut out).is_err());
    assert_eq!(chunks(&out)[0]["error"]["type"], "server_error");
    let bounds = Bounds { event: 1 << 20, answer: 100 };
    let (mut stream, mut out) = (claude(&hello()).0.bounded(bounds).stream(), BytesMut::new());
    let mut pushed = Ok(());
    for _ in 0..100 {
        pushed = pushed.and_then(|()| stream.push(START.as_bytes(), &mut out));
    }
    assert!(pushed.is_err() && stream.is_over());
    assert!(
        chunks(&out).pop().unwrap()["error"]["message"].as_str().unwrap().contains("100 bytes")
    );
}

#[test]
fn nonsense_is_not_passed_on() {
    for nonsense in ["data: {\n\n", "data: 7\n\n\u{0}", "<html>"] {
        let (mut stream, mut out) = (claude(&hello()).0.stream(), BytesMut::new());
        let pushed = stream.push(nonsense.as_bytes(), &mut out);
        let ended = stream.end(&mut out);
        assert!(pushed.is_err() || ended.is_err(), "{nonsense}");
        assert!(!chunks(&out).pop().unwrap()["error"].is_null());
    }
    let (call, _) = claude(&hello());
    assert!(call.answer(b"<html>").is_err());
    assert!(call.answer(b"{}").is_err());
}

#[test]
fn usage_is_said_to_whom_asked_for_it() {
    let end = concat!(
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"#,
        r#""usage":{"output_tokens":9}}"#,
        "\n\n",
        r#"data: {"type":"message_stop"}"#,
        "\n\n",
    );
    let mut asked = hello();
    asked["stream_options"] = json!({"include_usage": true});
    for (body, is_said) in [(hello(), false), (asked, true)] {
        let (call, written) = claude(&body);
        assert_eq!(written["stream"], true);
        let (mut stream, mut out) = (call.created(77).stream(), BytesMut::new());
        stream.push(START.as_bytes(), &mut out).unwrap();
        stream.push(end.as_bytes(), &mut out).unwrap();
        stream.end(&mut out).unwrap();
        let found = chunks(&out);
        assert_eq!(found[0]["created"], 77);
        let says = found.iter().filter(|chunk| !chunk["usage"].is_null()).count();
        assert_eq!(says, usize::from(is_said));
        if is_said {
            let usage = &found[found.len() - 2]["usage"];
            assert_eq!(
                (&usage["prompt_tokens"], &usage["completion_tokens"]),
                (&json!(7), &json!(9))
            );
        }
        assert_eq!(found.last().unwrap(), "[DONE]");
        assert_eq!(stream.usage.unwrap().output, 9);
    }
}
