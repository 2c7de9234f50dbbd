//! Where characters begin and end in output that arrives, or is cut, anywhere.

/// Returns how many bytes at the end belong to an incomplete character.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    let valid_from = bytes.len().saturating_sub(3);
    for (back, byte) in bytes[valid_from..].iter().rev().enumerate() {
        let length = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if back + 1 < length { back + 1 } else { 0 };
    }
    0
}

/// Returns how many bytes at the beginning belong to a character that was cut, which would show as
/// replacement characters.
pub(crate) fn cut_off<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> usize {
    bytes.into_iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_the_unfinished_end_of_a_text_is_held_back(text in "\\PC{0,20}", cut in 0..4_usize) {
            let bytes = &text.as_bytes()[..text.len().saturating_sub(cut)];
            let kept = &bytes[..bytes.len() - unfinished(bytes)];
            prop_assert!(std::str::from_utf8(kept).is_ok());
            prop_assert!(unfinished(text.as_bytes()) == 0);
        }

        #[test]
        fn no_bytes_are_too_odd_to_be_held_back(bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
            prop_assert!(unfinished(&bytes) <= bytes.len().min(3));
        }

        #[test]
        fn a_text_that_was_cut_goes_on_with_its_next_character(text in "\\PC{0,20}", cut in 0..4_usize) {
            let bytes = &text.as_bytes()[cut.min(text.len())..];
            prop_assert!(std::str::from_utf8(&bytes[cut_off(bytes)..]).is_ok());
        }
    }
}
