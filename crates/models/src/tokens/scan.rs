//! Finds values in JSON that arrives in pieces of any size, without keeping it. It does not
//! validate: in broken JSON, values are simply not found.

use super::keys::Key;
use memchr::memchr2;

/// How many levels of objects a path covers. Nothing that is searched for is deeper.
const PATH_MAX: usize = 12;
/// How many levels of objects and arrays are followed.
const DEPTH_MAX: u32 = 128;
/// Longest key or word that is recognized, in bytes.
const WORD_MAX: usize = 128;

/// What to do with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Skip,
    /// Pass it on in pieces.
    Text,
    /// Pass it on as a whole, if it is short.
    Word,
}

/// Receives what is found in a document. A path holds the names of the members that lead to a
/// value; arrays do not add to it.
pub(super) trait Sink {
    /// Called when a value begins with this byte. The result only matters for a text.
    fn value(&mut self, path: &[Key], first: u8) -> Take;
    /// Called with the next part of a text that was asked for, with its escapes resolved.
    fn text(&mut self, piece: &[u8]);
    fn word(&mut self, _path: &[Key], _word: &str) {}
    fn number(&mut self, _path: &[Key], _number: u64) {}
    /// Called with the name of a member, which is already in the path.
    fn key(&mut self, _path: &[Key], _name: &[u8]) {}
    /// Called when a document is complete. Elements of a top-level array are documents.
    fn end(&mut self) {}
}

#[derive(Debug, Clone, Copy)]
enum State {
    Between,
    /// In a text. `None` means that it is the name of a member.
    Text(Option<Take>),
    Escape(Option<Take>),
    /// How many digits were read, and their value.
    Unicode(Option<Take>, u8, u16),
    Number,
    /// In `true`, `false` or `null`.
    Literal,
}

#[derive(Debug)]
pub(super) struct Scan {
    state: State,
    /// One bit for each open level: whether it is an object.
    objects: u128,
    depth: u32,
    path: [Key; PATH_MAX],
    /// How many objects are open.
    levels: usize,
    expects_key: bool,
    word: Vec<u8>,
    /// The first half of a surrogate pair.
    high: Option<u16>,
    /// Whether the rest of this document cannot be understood.
    is_lost: bool,
    pub(super) is_list: bool,
    pub(super) is_list_closed: bool,
    pub(super) documents: u64,
}

impl Scan {
    pub(super) fn new() -> Self {
        Self {
            state: State::Between,
            objects: 0,
            depth: 0,
            path: [Key::Other; PATH_MAX],
            levels: 0,
            expects_key: false,
            word: Vec::new(),
            high: None,
            is_lost: false,
            is_list: false,
            is_list_closed: false,
            documents: 0,
        }
    }

    /// Starts over with another document.
    pub(super) fn reset(&mut self) {
        let word = std::mem::take(&mut self.word);
        let (is_list, is_list_closed) = (self.is_list, self.is_list_closed);
        *self = Self { word, is_list, is_list_closed, documents: self.documents, ..Self::new() };
    }

    pub(super) fn is_open(&self) -> bool {
        self.depth > 0
    }

    pub(super) fn push(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while let ([first, rest @ ..], false) = (bytes, self.is_lost) {
            match self.state {
                State::Text(take) => bytes = self.in_text(bytes, take, sink),
                State::Between => {
                    self.between(*first, sink);
                    bytes = rest;
                }
                State::Number => bytes = self.in_number(bytes, sink),
                State::Literal if first.is_ascii_lowercase() => bytes = rest,
                State::Literal => self.state = State::Between,
                State::Escape(take) => {
                    self.escaped(*first, take, sink);
                    bytes = rest;
                }
                State::Unicode(take, digits, value) => {
                    self.unicode(*first, take, digits, value, sink);
                    bytes = rest;
                }
            }
        }
    }

    fn path(&self) -> &[Key] {
        &self.path[..self.levels.min(PATH_MAX)]
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.objects & 1 == 1
    }

    fn between(&mut self, byte: u8, sink: &mut impl Sink) {
        match byte {
            b'"' if self.in_object() && self.expects_key => {
                self.word.clear();
                self.state = State::Text(None);
            }
            b'"' => {
                self.word.clear();
                let take = sink.value(self.path(), byte);
                self.state = State::Text(Some(take));
            }
            b'[' if self.depth == 0 => self.is_list = true,
            b']' if self.depth == 0 => self.is_list_closed = self.is_list,
            b'{' | b'[' => {
                sink.value(self.path(), byte);
                self.open(byte == b'{');
            }
            b'}' | b']' => self.close(sink),
            b',' => self.expects_key = self.in_object(),
            b':' => self.expects_key = false,
            b'0'..=b'9' | b'-' => {
                sink.value(self.path(), byte);
                self.word.clear();
                self.word.push(byte);
                self.state = State::Number;
            }
            b't' | b'f' | b'n' => {
                sink.value(self.path(), byte);
                self.state = State::Literal;
            }
            _ => {}
        }
    }

    fn open(&mut self, is_object: bool) {
        if self.depth == DEPTH_MAX {
            self.is_lost = true;
            return;
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(is_object);
        self.expects_key = is_object;
        if is_object {
            if let Some(key) = self.path.get_mut(self.levels) {
                *key = Key::Other;
            }
            self.levels += 1;
        }
    }

    fn close(&mut self, sink: &mut impl Sink) {
        if self.depth == 0 {
            return;
        }
        if self.in_object() {
            self.levels -= 1;
        }
        self.objects >>= 1;
        self.depth -= 1;
        self.expects_key = false;
        if self.depth == 0 {
            self.documents += 1;
            sink.end();
        }
    }

    /// Reads a text up to its end or the next escape.
    fn in_text<'b>(
        &mut self,
        bytes: &'b [u8],
        take: Option<Take>,
        sink: &mut impl Sink,
    ) -> &'b [u8] {
        let end = memchr2(b'"', b'\\', bytes);
        self.piece(&bytes[..end.unwrap_or(bytes.len())], take, sink);
        let Some(end) = end else { return &[] };
        if bytes[end] == b'\\' {
            self.state = State::Escape(take);
            return &bytes[end + 1..];
        }
        self.state = State::Between;
        self.high = None;
        match take {
            None => {
                if let Some(key) = self.levels.checked_sub(1).and_then(|at| self.path.get_mut(at)) {
                    *key = Key::of(&self.word);
                }
                sink.key(self.path(), &self.word);
            }
            Some(Take::Word) => {
                let word = std::mem::take(&mut self.word);
                sink.word(self.path(), std::str::from_utf8(&word).unwrap_or_default());
                self.word = word;
            }
            Some(_) => {}
        }
        &bytes[end + 1..]
    }

    fn piece(&mut self, piece: &[u8], take: Option<Take>, sink: &mut impl Sink) {
        match take {
            Some(Take::Text) => sink.text(piece),
            Some(Take::Skip) => {}
            Some(Take::Word) | None => self.keep(piece),
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        // Keep one byte too many, so that a name that was cut is not taken for a known one.
        let room = (WORD_MAX + 1).saturating_sub(self.word.len());
        self.word.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Reads a number up to its end.
    fn in_number<'b>(&mut self, bytes: &'b [u8], sink: &mut impl Sink) -> &'b [u8] {
        let is_of_it = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let end = bytes.iter().position(|byte| !is_of_it(byte));
        self.keep(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return &[] };
        self.state = State::Between;
        if let Some(number) = whole(&self.word) {
            sink.number(self.path(), number);
        }
        &bytes[end..]
    }

    fn escaped(&mut self, byte: u8, take: Option<Take>, sink: &mut impl Sink) {
        self.state = State::Text(take);
        let byte = match byte {
            b'u' => {
                self.state = State::Unicode(take, 0, 0);
                return;
            }
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            other => other,
        };
        self.piece(&[byte], take, sink);
    }

    fn unicode(
        &mut self,
        byte: u8,
        take: Option<Take>,
        digits: u8,
        value: u16,
        sink: &mut impl Sink,
    ) {
        let digit = (byte as char).to_digit(16).unwrap_or_default() as u16;
        let value = value << 4 | digit;
        if digits < 3 {
            self.state = State::Unicode(take, digits + 1, value);
            return;
        }
        self.state = State::Text(take);
        let decoded = match (self.high.take(), value) {
            (_, 0xd800..=0xdbff) => {
                self.high = Some(value);
                return;
            }
            (Some(high), 0xdc00..=0xdfff) => char::decode_utf16([high, value]).next(),
            _ => char::decode_utf16([value]).next(),
        };
        let decoded = decoded.and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.piece(decoded.encode_utf8(&mut [0; 4]).as_bytes(), take, sink);
    }
}

/// Returns the whole number that a word of JSON is nearest to. `None` means that it is below zero, is
/// too large, or was cut: nothing that is searched for can be that.
fn whole(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok().filter(|text| text.len() <= WORD_MAX)?;
    if let Ok(whole) = text.parse() {
        return Some(whole);
    }
    let number: f64 = text.parse().ok()?;
    (number >= 0.0 && number.round() < u64::MAX as f64).then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records everything it receives.
    #[derive(Default, PartialEq, Debug)]
    struct Notes {
        texts: Vec<u8>,
        words: Vec<(usize, String)>,
        numbers: Vec<(Vec<Key>, u64)>,
        ends: usize,
    }

    impl Sink for Notes {
        fn value(&mut self, path: &[Key], _: u8) -> Take {
            if path.last() == Some(&Key::Model) { Take::Word } else { Take::Text }
        }
        fn text(&mut self, piece: &[u8]) {
            self.texts.extend_from_slice(piece);
        }
        fn word(&mut self, path: &[Key], word: &str) {
            self.words.push((path.len(), word.to_owned()));
        }
        fn number(&mut self, path: &[Key], number: u64) {
            self.numbers.push((path.to_vec(), number));
        }
        fn end(&mut self) {
            self.ends += 1;
        }
    }

    fn notes(text: &[u8], cut: usize) -> Notes {
        let (mut scan, mut notes) = (Scan::new(), Notes::default());
        let (one, two) = text.split_at(cut.min(text.len()));
        scan.push(one, &mut notes);
        scan.push(two, &mut notes);
        notes
    }

    #[test]
    fn values_are_found_by_their_path() {
        let text = br#"{"usage": {"a": [1, {"total_tokens": 27}], "input_tokens":5}, "model" : "m\u00e9\ud83d\ude00\n", "x":"}{\"", "y":null}"#;
        let found = notes(text, 0);
        assert_eq!(found.words, [(1, "m\u{e9}\u{1f600}\n".to_owned())]);
        assert_eq!(found.texts, b"}{\"");
        let path = |keys: &[Key]| keys.to_vec();
        assert_eq!(
            found.numbers,
            [
                (path(&[Key::Usage, Key::Other]), 1),
                (path(&[Key::Usage, Key::Other, Key::TotalTokens]), 27),
                (path(&[Key::Usage, Key::InputTokens]), 5),
            ]
        );
        assert_eq!(found.ends, 1);
    }

    #[test]
    fn a_number_below_zero_is_none() {
        let text = br#"{"usage": {"input_tokens": -1, "output_tokens":-2.5e+3}, "total_tokens":7}"#;
        for cut in 0..text.len() {
            assert_eq!(notes(text, cut).numbers, [(vec![Key::TotalTokens], 7)], "{cut}");
        }
    }

    #[test]
    fn numbers_are_read_however_they_are_written() {
        for (written, wanted) in [
            ("1e3", Some(1000)),
            ("1.5e3", Some(1500)),
            ("1E2", Some(100)),
            ("2500e-2", Some(25)),
            ("1.2e+1", Some(12)),
            ("10.0", Some(10)),
            ("10.7", Some(11)),
            ("-0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e30", None),
            ("1e999", None),
            ("-1e-3", None),
            ("1e", None),
            ("1-2", None),
            (&format!("1{}", "0".repeat(WORD_MAX)), None),
            (&format!("1.{}e3", "0".repeat(WORD_MAX)), None),
        ] {
            let text = format!("{{\"usage\":{{\"input_tokens\":{written}}},\"total_tokens\":7}}");
            let first = wanted.map(|number| (vec![Key::Usage, Key::InputTokens], number));
            let all: Vec<_> = first.into_iter().chain([(vec![Key::TotalTokens], 7)]).collect();
            for cut in 0..text.len() {
                assert_eq!(notes(text.as_bytes(), cut).numbers, all, "{written}, {cut}");
            }
        }
    }

    #[test]
    fn elements_of_an_array_at_the_top_are_documents() {
        let (mut scan, mut found) = (Scan::new(), Notes::default());
        scan.push(br#"[{"a":1},{"a":2.5}"#, &mut found);
        assert_eq!((found.ends, scan.is_list, scan.is_list_closed), (2, true, false));
        scan.push(b"]", &mut found);
        assert!(scan.is_list_closed);
    }

    #[test]
    fn endless_depth_ends_the_search() {
        let deep = "[{\"a\":".repeat(100_000);
        assert_eq!(notes(deep.as_bytes(), 7).ends, 0);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::hash_map(".{0,6}|usage|model", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn texts_of(value: &serde_json::Value, key: &str, texts: &mut String, words: &mut Vec<String>) {
        use serde_json::Value;
        match value {
            Value::String(text) if key == "model" => {
                words.push(if text.len() > WORD_MAX { String::new() } else { text.clone() });
            }
            Value::String(text) => texts.push_str(text),
            Value::Array(list) => list.iter().for_each(|value| texts_of(value, key, texts, words)),
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| texts_of(value, key, texts, words))
            }
            _ => {}
        }
    }

    proptest! {
        /// The texts of any document are those that a parser finds, however it is cut.
        #[test]
        fn texts_are_those_of_a_parser(value in any_json(), cut in 0..500_usize) {
            let value = serde_json::json!({ "top": value });
            let (mut texts, mut words) = (String::new(), Vec::new());
            texts_of(&value, "", &mut texts, &mut words);
            let found = notes(value.to_string().as_bytes(), cut);
            prop_assert_eq!(String::from_utf8(found.texts).unwrap(), texts);
            prop_assert_eq!(found.words.len(), words.len());
            prop_assert_eq!(found.ends, 1);
        }

        #[test]
        fn nonsense_does_no_harm(bytes: Vec<u8>, text in r#"[\[\]{}",:\\u0-9a-f]{0,80}"#, cut in 0..80_usize) {
            notes(&bytes, cut);
            notes(text.as_bytes(), cut);
        }
    }
}
