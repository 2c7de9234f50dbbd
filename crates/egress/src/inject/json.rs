//! Adds fields to a JSON object without changing its other bytes: the form of its numbers, the
//! order and the white space may matter to whoever signed it.

use bytes::Bytes;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use zeroize::Zeroizing;

pub(super) struct Object {
    text: Bytes,
    names: HashMap<String, IgnoredAny>,
}

impl Object {
    /// Parses a text. Returns `None` if it is not a JSON object.
    pub(super) fn parse(text: &Bytes) -> Option<Self> {
        let names = serde_json::from_slice(text).ok()?;
        Some(Self { text: text.clone(), names })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the text with fields added before its own. It must not have them yet.
    pub(super) fn with(&self, fields: &[(&str, Zeroizing<String>)]) -> Bytes {
        let quoted = |text: &str| Zeroizing::new(serde_json::Value::from(text).to_string());
        // Only white space can precede the brace that opens the object.
        let open = self.text.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
        let mut body = self.text[..open].to_vec();
        for (index, (name, value)) in fields.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            body.extend(quoted(name).as_bytes());
            body.push(b':');
            body.extend(quoted(value).as_bytes());
        }
        if !self.names.is_empty() {
            body.push(b',');
        }
        body.extend(&self.text[open..]);
        body.into()
    }
}
