//! Typed input on its way to a remote terminal.

use crate::characters::Characters;

/// Ctrl-P, then Ctrl-Q: detaches from the terminal, as in similar tools.
const DETACH: [u8; 2] = [0x10, 0x11];

/// Result of processing typed input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    /// Text to send.
    pub(super) text: String,
    pub(super) detach: bool,
}

/// Finds the detach sequence, and joins bytes into whole characters.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// True if the last key was the first of the detach sequence.
    begun: bool,
    characters: Characters,
}

impl Keys {
    pub(super) fn take(&mut self, bytes: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (std::mem::take(&mut self.begun), byte) {
                (true, byte) if byte == DETACH[1] => {
                    return Typed { text: self.characters.take(&passed), detach: true };
                }
                // A second Ctrl-P sends the first one, and may itself begin the sequence.
                (begun, byte) if byte == DETACH[0] => {
                    if begun {
                        passed.push(DETACH[0]);
                    }
                    self.begun = true;
                }
                (begun, byte) => {
                    if begun {
                        passed.push(DETACH[0]);
                    }
                    passed.push(byte);
                }
            }
        }
        Typed { text: self.characters.take(&passed), detach: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(pieces: &[&[u8]]) -> (String, bool) {
        let (mut keys, mut text) = (Keys::default(), String::new());
        for piece in pieces {
            let found = keys.take(piece);
            text.push_str(&found.text);
            if found.detach {
                return (text, true);
            }
        }
        (text, false)
    }

    #[test]
    fn the_sequence_leaves_and_is_not_passed_on() {
        assert_eq!(typed(&[b"ls\x10\x11rm"]), ("ls".into(), true));
        assert_eq!(typed(&[b"a\x10", b"\x11"]), ("a".into(), true));
        assert_eq!(typed(&[b"\x10\x10\x11"]), ("\u{10}".into(), true));
    }

    #[test]
    fn half_a_sequence_is_only_keys() {
        assert_eq!(typed(&[b"\x10x\x11"]), ("\u{10}x\u{11}".into(), false));
        assert_eq!(typed(&[b"\x10", b"\x10", b"y"]), ("\u{10}\u{10}y".into(), false));
    }

    proptest! {
        #[test]
        fn text_passes_however_it_arrives(text in "[^\u{10}]{0,20}", cut in 1..5_usize) {
            let pieces: Vec<_> = text.as_bytes().chunks(cut).collect();
            prop_assert_eq!(typed(&pieces), (text.clone(), false));
        }
    }
}
