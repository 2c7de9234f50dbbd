//! Rendering of an agent's answer as text. Agents answer with events, lines of JSON or plain text,
//! and many do not declare which in the content type, so the beginning of the answer decides.

use crate::characters::Characters;
use serde_json::Value;

/// Members that hold the text, in order of preference.
const MEMBERS: [&str; 9] =
    ["content", "text", "delta", "output", "message", "response", "answer", "result", "outputs"];
/// Text nested deeper than this is shown as JSON.
const DEPTH_MAX: usize = 6;
/// Field names of events. An answer that begins with one of them consists of events.
const FIELDS: [&str; 5] = ["data:", "event:", "id:", "retry:", ":"];
const LAST_EVENT: &str = "[DONE]";

#[derive(Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Unknown,
    Events,
    Json,
    Plain,
}

#[derive(Debug, Default)]
pub(super) struct Render {
    form: Form,
    characters: Characters,
    /// Text not shown yet, such as the beginning of a line.
    held: String,
    /// Data of an incomplete event.
    event: Vec<String>,
}

impl Render {
    /// Takes a piece of the answer and returns the text to show for it.
    pub(super) fn take(&mut self, piece: &[u8]) -> String {
        let text = self.characters.take(piece);
        self.held.push_str(&text);
        if self.form == Form::Unknown {
            self.form = form_of(&self.held);
        }
        match self.form {
            Form::Unknown => String::new(),
            Form::Plain => std::mem::take(&mut self.held),
            Form::Events | Form::Json => self.lines(),
        }
    }

    /// Returns the remaining text at the end.
    pub(super) fn finish(&mut self) -> String {
        let rest = self.characters.finish();
        self.held.push_str(&rest);
        match self.form {
            Form::Unknown | Form::Plain => std::mem::take(&mut self.held),
            Form::Events | Form::Json => {
                self.held.push('\n');
                let mut shown = self.lines();
                shown.push_str(&self.end_event());
                shown
            }
        }
    }

    fn lines(&mut self) -> String {
        let mut shown = String::new();
        while let Some(at) = self.held.find('\n') {
            let rest = self.held.split_off(at + 1);
            let line = std::mem::replace(&mut self.held, rest);
            let line = line.trim_end_matches(['\n', '\r']);
            match self.form {
                Form::Events => shown.push_str(&self.event_line(line)),
                _ => shown.push_str(&json_line(line)),
            }
        }
        shown
    }

    fn event_line(&mut self, line: &str) -> String {
        if line.is_empty() {
            return self.end_event();
        }
        if let Some(data) = line.strip_prefix("data:") {
            self.event.push(data.strip_prefix(' ').unwrap_or(data).to_owned());
        }
        String::new()
    }

    fn end_event(&mut self) -> String {
        let data = std::mem::take(&mut self.event).join("\n");
        if data == LAST_EVENT { String::new() } else { said(&data) }
    }
}

/// Decides on the form of an answer, or `Unknown` until enough of it has arrived.
fn form_of(begin: &str) -> Form {
    let begin = begin.trim_start();
    if FIELDS.iter().any(|field| begin.starts_with(field)) {
        return Form::Events;
    }
    match begin.chars().next() {
        None => Form::Unknown,
        Some('{') => Form::Json,
        Some(_) if FIELDS.iter().any(|field| field.starts_with(begin)) => Form::Unknown,
        Some(_) => Form::Plain,
    }
}

/// Returns the text of a line of JSON. A line that is not JSON is shown as it is.
fn json_line(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(value) => text_of(&value, 0).unwrap_or_default(),
        Err(_) if line.is_empty() => String::new(),
        Err(_) => format!("{line}\n"),
    }
}

/// Returns the text of an event's data, which may be plain text.
fn said(data: &str) -> String {
    match serde_json::from_str::<Value>(data) {
        Ok(value @ (Value::Object(_) | Value::String(_))) => text_of(&value, 0).unwrap_or_default(),
        _ => data.to_owned(),
    }
}

/// Finds the text in a value. Objects without any are left out, since they are only about the
/// conversation; other values inside are shown as JSON.
fn text_of(value: &Value, depth: usize) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(members) if depth < DEPTH_MAX => {
            let choice = members.get("choices").and_then(|choices| choices.get(0));
            if let Some(choice) = choice {
                return text_of(choice, depth + 1);
            }
            let found = MEMBERS.iter().find_map(|name| members.get(*name));
            found.filter(|found| !found.is_null()).and_then(|found| text_of(found, depth + 1))
        }
        Value::Array(items) if depth < DEPTH_MAX => {
            Some(items.iter().filter_map(|item| text_of(item, depth + 1)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) | Value::Array(_) => {
            (depth > 0 && !value.is_object()).then(|| value.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(pieces: &[&[u8]]) -> String {
        let mut render = Render::default();
        let mut shown: String = pieces.iter().map(|piece| render.take(piece)).collect();
        shown.push_str(&render.finish());
        shown
    }

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        assert_eq!(rendered(&[answer.as_bytes()]), expected, "{answer}");
    }

    #[test]
    fn the_text_of_every_form_is_shown() {
        check("hello\nyou", "hello\nyou");
        check("data: hel\n\ndata: lo\n\ndata: [DONE]\n\n", "hello");
        check("event: m\ndata: a\ndata: b\n\n", "a\nb");
        check(r#"data: {"choices": [{"delta": {"content": "hi"}}]}"#, "hi");
        check("{\"content\": \"a\"}\n{\"type\": \"ping\"}\n{\"text\": \"b\"}\n", "ab");
        check(r#"{"outputs": [{"text": "x"}, {"text": "y"}]}"#, "xy");
        check("date", "date");
        check("dat", "dat");
        check("{no json\n", "{no json\n");
    }

    proptest! {
        #[test]
        fn an_answer_is_shown_however_it_arrives(
            answer in "data: [a-z\u{e9}]{0,6}\n\n(data: [a-z]{0,6}\n\n){0,3}|\\{\"text\": \"[a-z]{0,4}\"\\}\n|\\PC{0,20}",
            cut in 1..6_usize,
        ) {
            let pieces: Vec<_> = answer.as_bytes().chunks(cut).collect();
            prop_assert_eq!(rendered(&pieces), rendered(&[answer.as_bytes()]));
        }
    }
}
