//! Decoding of UTF-8 that arrives in pieces.

/// Decoder that keeps an incomplete character until the rest arrives.
#[derive(Debug, Default)]
pub(crate) struct Characters {
    unfinished: Vec<u8>,
}

impl Characters {
    /// Returns all complete characters. Invalid bytes become replacement characters.
    pub(crate) fn take(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.unfinished);
        bytes.extend_from_slice(piece);
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let ends = invalid.as_ptr_range().end == bytes.as_ptr_range().end;
            // An incomplete character at the end.
            let unfinished =
                std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            match invalid {
                [] => {}
                invalid if ends && unfinished => self.unfinished = invalid.to_vec(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        text
    }

    /// Returns what is left at the end of the input.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.unfinished)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_does_not_depend_on_how_it_arrives(
            bytes in proptest::collection::vec(any::<u8>(), 0..30), text in "\\PC{0,9}", cut in 1..5_usize,
        ) {
            let bytes = [text.as_bytes(), &bytes].concat();
            let mut characters = Characters::default();
            let mut found: String = bytes.chunks(cut).map(|piece| characters.take(piece)).collect();
            found.push_str(&characters.finish());
            prop_assert_eq!(found, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
