//! A conversation with a model, in the OpenAI format.

use super::THREAD;
use crate::characters::Characters;
use crate::client::workload::{Workload, refusal};
use crate::error::Error;
use crate::term;
use reqwest::Method;
use serde_json::{Value, json};

/// Longest accepted event, or answer without events.
const HELD_BYTES_MAX: usize = 16 << 20;

pub(super) struct Conversation {
    model: Workload,
    /// Lets the server keep sending requests to the same one of several models.
    thread: String,
    /// The whole conversation, since the model itself remembers nothing.
    messages: Vec<Value>,
}

impl Conversation {
    pub(super) fn new(model: Workload, thread: String, system: Option<&str>) -> Self {
        let messages = system.map(|text| json!({"role": "system", "content": text}));
        Self { model, thread, messages: messages.into_iter().collect() }
    }

    /// Sends a message and shows the answer. An interrupted or failed exchange leaves no trace in
    /// the conversation.
    pub(super) async fn ask(&mut self, message: &str) -> Result<(), Error> {
        let asked = json!({"role": "user", "content": message});
        let messages: Vec<_> = self.messages.iter().chain([&asked]).collect();
        let request = self.model.request(Method::POST, "/v1/chat/completions").await?;
        let body = json!({"messages": messages, "stream": true});
        let mut response =
            self.model.send(request.header(THREAD, &self.thread).json(&body)).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let (mut answer, mut reader) = (String::new(), Reader::default());
        let mut show = |text: String| {
            if !text.is_empty() {
                term::say_part(term::harmless(&text));
                answer.push_str(&text);
            }
        };
        loop {
            let cut = |source: reqwest::Error| self.model.broke_off(source.without_url());
            let piece = response.chunk().await.map_err(cut)?;
            let ended = piece.is_none();
            let read = match piece {
                Some(piece) => reader.take(&piece),
                None => reader.finish(),
            };
            show(read.map_err(|why| self.model.broke_off(why))?);
            if ended {
                break;
            }
        }
        if !answer.ends_with('\n') {
            term::say("");
        }
        self.messages.push(asked);
        self.messages.push(json!({"role": "assistant", "content": answer}));
        Ok(())
    }
}

/// Extracts the text of an answer, which arrives as events, or as one object from providers that do
/// not stream.
#[derive(Default)]
struct Reader {
    characters: Characters,
    /// An incomplete line, or everything so far if the answer is not made of events.
    held: String,
    is_events: bool,
}

impl Reader {
    fn take(&mut self, piece: &[u8]) -> Result<String, String> {
        self.held.push_str(&self.characters.take(piece));
        let mut shown = String::new();
        while let Some(at) = self.held.find('\n') {
            let line = self.held.get(..at).unwrap_or_default().trim_end_matches('\r');
            let is_event = ["data:", "event:", "id:", "retry:", ":"];
            let is_event = is_event.iter().any(|field| line.starts_with(field));
            if !is_event && !self.is_events && !line.is_empty() {
                // A single object that spans several lines.
                break;
            }
            self.is_events |= is_event;
            shown.push_str(&event(line)?);
            self.held.drain(..=at);
        }
        match self.held.len() > HELD_BYTES_MAX {
            true => Err("the answer has an event without an end".to_owned()),
            false => Ok(shown),
        }
    }

    fn finish(&mut self) -> Result<String, String> {
        let rest = self.characters.finish();
        self.held.push_str(&rest);
        match (self.is_events, self.held.trim()) {
            (_, "") => Ok(String::new()),
            (true, line) => event(line),
            (false, text) => {
                let answer: Value =
                    serde_json::from_str(text).map_err(|_| "the answer is not JSON".to_owned())?;
                content(&answer, "/choices/0/message/content")
            }
        }
    }
}

/// Returns the text that one line of an event adds.
fn event(line: &str) -> Result<String, String> {
    let Some(data) = line.strip_prefix("data:") else { return Ok(String::new()) };
    let data = data.trim();
    if matches!(data, "" | "[DONE]") {
        return Ok(String::new());
    }
    let event: Value = serde_json::from_str(data).map_err(|_| "an event is not JSON".to_owned())?;
    content(&event, "/choices/0/delta/content")
}

fn content(said: &Value, at: &str) -> Result<String, String> {
    if let Some(error) = said.get("error").filter(|error| !error.is_null()) {
        let message = error.get("message").and_then(Value::as_str);
        let message = message.map_or_else(|| error.to_string(), str::to_owned);
        return Err(message);
    }
    Ok(said.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Result<String, String> {
        let mut reader = Reader::default();
        let mut shown = String::new();
        for piece in pieces {
            shown.push_str(&reader.take(piece)?);
        }
        shown.push_str(&reader.finish()?);
        Ok(shown)
    }

    const STREAM: &str = ": ping\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"Gr\u{fc}\u{df} \"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"Gott\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\ndata: [DONE]\n\n";

    #[test]
    fn answers_are_events_or_one_object() {
        assert_eq!(read(&[STREAM.as_bytes()]).unwrap(), "Gr\u{fc}\u{df} Gott");
        let object = "{\n \"choices\": [{\"message\": {\"content\": \"ok\"}}]\n}\n";
        assert_eq!(read(&[object.as_bytes()]).unwrap(), "ok");
        let broken = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"over\"}}\n\n";
        assert!(read(&[broken.as_bytes()]).unwrap_err() == "over");
        assert!(read(&[b"<html>"]).is_err());
    }

    proptest! {
        #[test]
        fn a_stream_may_be_cut_anywhere(at in 0..STREAM.len()) {
            let (first, rest) = STREAM.as_bytes().split_at(at);
            prop_assert_eq!(read(&[first, rest]).unwrap(), "Gr\u{fc}\u{df} Gott");
        }

        #[test]
        fn any_answer_is_read_or_refused(text in "\\PC{0,200}|(data: [{}\\[\\]\":a-z]{0,30}\n){0,5}") {
            let _ = read(&[text.as_bytes()]);
        }
    }
}
