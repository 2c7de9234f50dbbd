//! Shows each text and number of JSON to whoever looks for something in it, and puts others in
//! their place. The rest of the JSON stays byte for byte as it is.

use super::patterns::{MASK, TooSlow, is_json};
use super::redact::{DEPTH_MAX, begins_json, end_of_text};
use serde_json::Value;

/// How deep objects and lists may be nested: what parses them into values goes no deeper.
const NESTED_MAX: usize = 127;

/// Members whose numbers set or count something, by how many objects and lists they lie in. So do
/// numbers directly in the body.
const SETTINGS: [(usize, &str); 17] = [
    (1, "\"generationConfig\""),
    (1, "\"generation_config\""),
    (1, "\"thinking\""),
    (1, "\"usage\""),
    (1, "\"usageMetadata\""),
    (1, "\"x_groq\""),
    (1, "\"meta\""),
    (1, "\"timings\""),
    (1, "\"prompt_logprobs\""),
    (1, "\"embedding\""),
    (1, "\"embeddings\""),
    (3, "\"embedding\""),
    (3, "\"logprobs\""),
    (3, "\"logprobsResult\""),
    (3, "\"avgLogprobs\""),
    (3, "\"safetyRatings\""),
    (5, "\"logprobs\""),
];

/// Why not everything in a body can be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    TooSlow,
    TooDeep,
    /// It has a text that is none, such as half a character.
    Unreadable,
}

impl From<TooSlow> for Unseen {
    fn from(TooSlow: TooSlow) -> Self {
        Self::TooSlow
    }
}

/// Returns what to put in the place of a text or number, if it has to go.
type See<'s> = dyn FnMut(&str) -> Result<Option<String>, TooSlow> + 's;

/// Shows every text, by what it means, and every number, as it is written. Names of members are not
/// texts, except in JSON within texts. Returns the JSON with the changes, if there are any.
pub(super) fn rewritten(json: &str, see: &mut See<'_>) -> Result<Option<String>, Unseen> {
    in_json(json, 0, see)
}

fn in_json(json: &str, depth: usize, see: &mut See<'_>) -> Result<Option<String>, Unseen> {
    let bytes = json.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    let mut place = JsonPosition::new(json);
    while let Some(byte) = bytes.get(at) {
        let (length, new) = match byte {
            b'"' => {
                let (length, _) = end_of_text(&bytes[at..]);
                let written = &json[at..at + length];
                if is_name(&bytes[at + length..]) {
                    place.at_member(written);
                    (length, None)
                } else {
                    (length, in_text(written, depth, see)?)
                }
            }
            b'-' | b'0'..=b'9' => {
                let length = number_length(&bytes[at..]);
                let is_setting = depth == 0 && place.is_setting();
                let seen = if is_setting { None } else { see(&json[at..at + length])? };
                (length, seen.map(|_| quoted(MASK.to_owned())))
            }
            b'{' | b'[' => {
                place.open()?;
                (1, None)
            }
            b'}' | b']' => {
                place.close();
                (1, None)
            }
            _ => (1, None),
        };
        if let Some(new) = new {
            out.push_str(&json[copied..at]);
            out.push_str(&new);
            copied = at + length;
        }
        at += length;
    }
    if copied == 0 {
        return Ok(None);
    }
    out.push_str(&json[copied..]);
    Ok(Some(out))
}

fn in_text(written: &str, depth: usize, see: &mut See<'_>) -> Result<Option<String>, Unseen> {
    let text: String = serde_json::from_str(written).map_err(|_| Unseen::Unreadable)?;
    let inner = match begins_json(&text) && is_json(text.as_bytes()) {
        true if depth < DEPTH_MAX => in_json(&text, depth + 1, see)?,
        // Without any escape, all of it can be seen as it is.
        true if text.contains('\\') => return Err(Unseen::TooDeep),
        _ => None,
    };
    let new = see(inner.as_deref().unwrap_or(&text))?;
    Ok(new.or(inner).map(quoted))
}

fn quoted(text: String) -> String {
    Value::String(text).to_string()
}

/// Returns whether what comes before this is the name of a member.
fn is_name(rest: &[u8]) -> bool {
    rest.trim_ascii_start().first() == Some(&b':')
}

fn number_length(json: &[u8]) -> usize {
    let is_in = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    json.iter().position(|byte| !is_in(byte)).unwrap_or(json.len())
}

/// Where in a body something is.
struct JsonPosition {
    is_object: bool,
    nested: usize,
    /// How deep the member lies whose numbers are settings.
    setting: Option<usize>,
}

impl JsonPosition {
    fn new(json: &str) -> Self {
        Self { is_object: json.trim_start().starts_with('{'), nested: 0, setting: None }
    }

    fn is_setting(&self) -> bool {
        self.setting.is_some() || (self.is_object && self.nested == 1)
    }

    /// Goes on to the member of this name, which has its quotes.
    fn at_member(&mut self, name: &str) {
        self.setting = self.setting.filter(|at| *at < self.nested);
        if self.setting.is_none() && SETTINGS.contains(&(self.nested, name)) {
            self.setting = Some(self.nested);
        }
    }

    fn open(&mut self) -> Result<(), Unseen> {
        self.nested += 1;
        if self.nested > NESTED_MAX { Err(Unseen::TooDeep) } else { Ok(()) }
    }

    fn close(&mut self) {
        self.nested -= 1;
        self.setting = self.setting.filter(|at| *at <= self.nested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(json: &str) -> Result<Vec<String>, Unseen> {
        let mut all = Vec::new();
        rewritten(json, &mut |text: &str| {
            all.push(text.to_owned());
            Ok(None)
        })?;
        Ok(all)
    }

    #[test]
    fn texts_and_numbers_are_seen_but_not_settings() {
        let json =
            r#"{"seed":1,"usage":{"a":[2,{"b":3}]},"x":[4,-5.0e1,"t"],"y":{"usage":6,"z":"7"}}"#;
        assert_eq!(seen(json).unwrap(), ["4", "-5.0e1", "t", "6", "7"]);
        assert_eq!(seen(r#"{"choices":[{"logprobs":[1],"x":2}],"x":[3]}"#).unwrap(), ["2", "3"]);
        assert_eq!(
            seen(" [1, 12345678901234567890123] ").unwrap(),
            ["1", "12345678901234567890123"]
        );
        let inner = r#"{"a":1,"b":"\u0073"}"#;
        let json = Value::from(vec![inner]).to_string();
        assert_eq!(seen(&json).unwrap(), ["1", "s", inner]);
    }

    #[test]
    fn what_cannot_be_seen_is_told() {
        assert_eq!(seen(r#"["\ud800"]"#), Err(Unseen::Unreadable));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(seen(&nested(NESTED_MAX)).is_ok());
        assert_eq!(seen(&nested(NESTED_MAX + 1)), Err(Unseen::TooDeep));
        let within = |texts: usize| {
            (0..texts)
                .fold(r#"["\u0073"]"#.to_owned(), |json, _| Value::from(vec![json]).to_string())
        };
        assert!(seen(&within(DEPTH_MAX)).unwrap().contains(&"s".to_owned()));
        assert_eq!(seen(&within(DEPTH_MAX + 1)), Err(Unseen::TooDeep));
    }

    proptest! {
        #[test]
        fn what_is_replaced_is_still_json(
            texts in proptest::collection::vec("[a\"\\\\{}\\[\\]:,1 é]{0,12}", 0..4),
            numbers in proptest::collection::vec(any::<i32>(), 0..3),
        ) {
            let inner = serde_json::json!({"t": texts, "n": numbers});
            let json = serde_json::json!({"x": [inner, inner.to_string()]}).to_string();
            let same = rewritten(&json, &mut |_: &str| Ok(None)).unwrap();
            prop_assert_eq!(same, None);
            let new = rewritten(&json, &mut |text: &str| Ok(text.contains('1').then(|| "2".into())));
            let new = new.unwrap().unwrap_or(json);
            let value: Value = serde_json::from_str(&new).unwrap();
            prop_assert!(value["x"].is_array());
        }
    }
}
