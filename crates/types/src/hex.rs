//! Bytes as hexadecimal text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes bytes with lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Reads bytes that are written with digits of either case.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    let pair = |pair: &[u8]| Some(value(pair[0])? << 4 | value(pair[1])?);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits_are_read_in_pairs_and_in_either_case() {
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        assert_eq!(decode("000AfF"), Some(vec![0, 10, 255]));
        for bad in ["0", "0g", "+1", "\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_read_as_they_are_written(bytes in any::<Vec<u8>>()) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
