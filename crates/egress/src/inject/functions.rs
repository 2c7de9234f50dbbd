//! Evaluates `{{FUNC:name(args)}}` in values of rules.

use types::World;

/// How many calls are evaluated per request. The rest stay as they are written.
const CALLS_MAX: u32 = 10;
const NUMBER_MAX: u64 = 1024;
const OPEN: &str = "{{FUNC:";

/// The functions available to one request.
pub(super) struct Functions<'a> {
    world: &'a World,
    calls_left: u32,
}

impl<'a> Functions<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Self { world, calls_left: CALLS_MAX }
    }

    /// Replaces the calls in a text. Returns the text, and each result as `name=value`.
    pub(super) fn expand(&mut self, text: &str) -> (String, Vec<String>) {
        let (mut expanded, mut calls) = (String::with_capacity(text.len()), Vec::new());
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let (before, token) = rest.split_at(at);
            expanded.push_str(before);
            match self.call(token) {
                Some((name, value, length)) => {
                    expanded.push_str(&value);
                    calls.push(format!("{name}={value}"));
                    rest = &token[length..];
                }
                None => {
                    expanded.push('{');
                    rest = &token[1..];
                }
            }
        }
        expanded.push_str(rest);
        (expanded, calls)
    }

    /// Evaluates the call at the start of a text. Returns its name, value and length.
    fn call(&mut self, text: &str) -> Option<(String, String, usize)> {
        let head = text.get(..OPEN.len()).filter(|head| head.eq_ignore_ascii_case(OPEN))?;
        let end = text.find("}}")?;
        let (name, args) = text[head.len()..end].split_once('(')?;
        let args = args.strip_suffix(')')?.trim();
        let name = name.to_ascii_lowercase();
        if self.calls_left == 0 {
            return None;
        }
        let value = self.value(&name, args)?;
        self.calls_left -= 1;
        Some((name, value, end + 2))
    }

    fn value(&self, name: &str, args: &str) -> Option<String> {
        let number = || {
            let is_number = !args.is_empty() && args.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| args.parse().ok()).flatten();
            number.filter(|number| (1..=NUMBER_MAX).contains(number))
        };
        let or = |otherwise: u64| if args.is_empty() { Some(otherwise) } else { number() };
        match name {
            "randint" => return or(2_147_483_647).map(|end| self.below(end).to_string()),
            "randhex" => return or(32).map(|length| self.letters(length, b"0123456789abcdef")),
            "randstr" => return or(16).map(|length| self.letters(length, ALPHANUMERIC)),
            _ => {}
        }
        if !args.is_empty() {
            return None;
        }
        let now = self.world.now();
        let time = |format: &str| {
            let now = jiff::Timestamp::from_millisecond(now.ms()).ok()?;
            Some(now.strftime(format).to_string())
        };
        match name {
            "uuid" | "uuidv4" => Some(uuid(self.world.random_bytes(), 4)),
            "uuidv7" => {
                let mut bytes: [u8; 16] = self.world.random_bytes();
                bytes[..6].copy_from_slice(&now.ms().to_be_bytes()[2..]);
                Some(uuid(bytes, 7))
            }
            "timestamp" => Some(now.seconds().to_string()),
            "timestamp_ms" => Some(now.ms().to_string()),
            "timestamp_ns" => Some((i128::from(now.ms()) * 1_000_000).to_string()),
            "datetime" | "iso8601" => time("%Y-%m-%dT%H:%M:%SZ"),
            "date" => time("%Y-%m-%d"),
            "time" => time("%H:%M:%S"),
            "nonce" => Some(self.letters(32, b"0123456789abcdef")),
            _ => None,
        }
    }

    /// Returns a random number below `end`, each with the same probability.
    fn below(&self, end: u64) -> u64 {
        // Draw again if the number is in the uneven rest, which is very unlikely with 64 bits.
        let even = u64::MAX - u64::MAX % end;
        loop {
            let drawn = u64::from_be_bytes(self.world.random_bytes());
            if drawn < even {
                return drawn % end;
            }
        }
    }

    fn letters(&self, length: u64, alphabet: &[u8]) -> String {
        let even = 256 - 256 % alphabet.len();
        let drawn = std::iter::repeat_with(|| self.world.random_bytes::<32>()).flatten();
        let letters = drawn.map(usize::from).filter(|&byte| byte < even);
        let letters = letters.map(|byte| char::from(alphabet[byte % alphabet.len()]));
        letters.take(usize::try_from(length).unwrap_or(usize::MAX)).collect()
    }
}

const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

pub(crate) fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
    }
    text
}
