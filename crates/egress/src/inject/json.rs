//! Fields that are put into an object of JSON whose other bytes stay as they are: numbers, their
//! order and their spaces may mean something to whoever signed them.

use bytes::Bytes;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use zeroize::Zeroizing;

pub(super) struct Object {
    text: Bytes,
    names: HashMap<String, IgnoredAny>,
}

impl Object {
    /// `None` for what is no JSON, or no object.
    pub(super) fn parse(text: &Bytes) -> Option<Self> {
        let names = serde_json::from_slice(text).ok()?;
        Some(Self { text: text.clone(), names })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// With fields that it does not have yet, in front of its own.
    pub(super) fn with(&self, fields: &[(&str, Zeroizing<String>)]) -> Bytes {
        let quoted = |text: &str| Zeroizing::new(serde_json::Value::from(text).to_string());
        // An object begins with the first brace: only spaces can be in front.
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
