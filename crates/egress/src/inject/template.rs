//! Fills in `{{SECRET:name}}` in texts.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use zeroize::Zeroizing;

/// How a text escapes characters with a special meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    /// Within a JSON string.
    Json,
    /// In URLs and forms. The placeholder itself may be encoded too.
    Url,
}

const OPEN: &[u8] = b"{{SECRET:";
const CLOSE: &[u8] = b"}}";
/// Longest name a secret can have; longer names cannot match any.
const NAME_BYTES_MAX: usize = 1024;
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Replaces each secret that `lookup` knows. Inserted values are not searched again. Returns `None`
/// if there was nothing to replace.
pub(super) fn fill<'s>(
    text: &[u8],
    encoding: Encoding,
    lookup: &mut dyn FnMut(&str) -> Option<&'s str>,
) -> Option<Zeroizing<Vec<u8>>> {
    let mut filled: Option<Zeroizing<Vec<u8>>> = None;
    let (mut copied, mut at) = (0, 0);
    let may_begin = |byte: &u8| *byte == b'{' || (encoding == Encoding::Url && *byte == b'%');
    while let Some(found) = text[at..].iter().position(may_begin) {
        at += found;
        let Some((name, end)) = token(text, at, encoding) else {
            at += 1;
            continue;
        };
        let Some(secret) = lookup(&name) else {
            at += 1;
            continue;
        };
        let filled = filled.get_or_insert_with(|| {
            // Enough for most texts: growing would leave copies of the secret behind in memory.
            Zeroizing::new(Vec::with_capacity(text.len() + secret.len() * 4))
        });
        filled.extend(&text[copied..at]);
        write(filled, secret, encoding);
        (copied, at) = (end, end);
    }
    if let Some(filled) = &mut filled {
        filled.extend(&text[copied..]);
    }
    filled
}

fn write(filled: &mut Vec<u8>, secret: &str, encoding: Encoding) {
    match encoding {
        Encoding::Plain => filled.extend(secret.as_bytes()),
        Encoding::Url => {
            filled.extend(percent_encode(secret.as_bytes(), RESERVED).flat_map(str::bytes));
        }
        Encoding::Json => {
            let quoted = Zeroizing::new(serde_json::Value::from(secret).to_string());
            filled.extend(quoted[1..quoted.len() - 1].as_bytes());
        }
    }
}

/// Reads a placeholder that begins at `at`. Returns its name, and where it ends.
fn token(text: &[u8], at: usize, encoding: Encoding) -> Option<(String, usize)> {
    let mut at = expect(text, at, OPEN, encoding)?;
    let mut name = Vec::new();
    loop {
        if let Some(end) = expect(text, at, CLOSE, encoding) {
            return String::from_utf8(name).ok().map(|name| (name, end));
        }
        let (byte, after) = next(text, at, encoding)?;
        if name.len() >= NAME_BYTES_MAX || b"{}".contains(&byte) {
            return None;
        }
        name.push(byte);
        at = after;
    }
}

fn expect(text: &[u8], mut at: usize, wanted: &[u8], encoding: Encoding) -> Option<usize> {
    for wanted in wanted {
        let (byte, after) = next(text, at, encoding)?;
        if byte != *wanted {
            return None;
        }
        at = after;
    }
    Some(at)
}

/// Reads one byte with its escapes resolved. Also returns where the next one begins.
fn next(text: &[u8], at: usize, encoding: Encoding) -> Option<(u8, usize)> {
    let byte = *text.get(at)?;
    if encoding != Encoding::Url || byte != b'%' {
        return Some((byte, at + 1));
    }
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    match (digit(at + 1), digit(at + 2)) {
        (Some(high), Some(low)) => u8::try_from(high * 16 + low).ok().map(|byte| (byte, at + 3)),
        _ => Some((byte, at + 1)),
    }
}
