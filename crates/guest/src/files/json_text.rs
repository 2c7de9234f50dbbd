//! Writes a JSON object whose last value is a text that may be too large for memory.

use bytes::Bytes;

/// Writes the text piece by piece. Bytes that are not UTF-8 become U+FFFD; a character may be split
/// between two pieces.
pub(crate) struct JsonText {
    out: Vec<u8>,
    /// The start of a character whose end has not arrived yet.
    cut: Vec<u8>,
}

impl JsonText {
    /// Continues the JSON object in `head` with one more member.
    pub(crate) fn after(mut head: Vec<u8>, member: &str) -> Self {
        head.pop();
        head.extend_from_slice(format!(",\"{member}\":\"").as_bytes());
        Self { out: head, cut: Vec::new() }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        let joined;
        let mut rest = piece;
        if !self.cut.is_empty() {
            joined = [self.cut.as_slice(), piece].concat();
            self.cut.clear();
            rest = &joined;
        }
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.write(text),
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.write(&String::from_utf8_lossy(good));
                    match error.error_len() {
                        None => return self.cut.extend_from_slice(bad),
                        Some(length) => {
                            self.write("\u{fffd}");
                            rest = &bad[length..];
                        }
                    }
                }
            }
        }
    }

    /// Takes what has been written so far.
    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.out))
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.cut.is_empty() {
            self.write("\u{fffd}");
        }
        self.out.extend_from_slice(b"\"}");
        self.out
    }

    fn write(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        self.out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_become_the_same_text_however_they_are_cut(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..80),
                "\\PC{0,40}".prop_map(String::into_bytes),
            ],
            step in 1_usize..20,
        ) {
            let mut text = JsonText::after(br#"{"a":1}"#.to_vec(), "content");
            bytes.chunks(step).for_each(|piece| text.push(piece));
            let read: serde_json::Value = serde_json::from_slice(&text.finish()).unwrap();
            prop_assert_eq!(read["content"].as_str().unwrap(), String::from_utf8_lossy(&bytes));
        }
    }
}
