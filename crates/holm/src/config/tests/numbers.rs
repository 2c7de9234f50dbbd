//! What is said of numbers that no setting can have.

use super::{known_keys, load_with, usual};

/// Uses the list of known keys, so that a new one cannot be forgotten.
#[test]
fn every_number_says_what_is_right_in_words() {
    for key in known_keys().into_iter().filter(|key| usual(key).is_integer()) {
        let name = format!("HOLM_{}", key.to_uppercase().replace('.', "__"));
        let said = |text: &str| load_with("", &[(&name, text)]).unwrap_err().to_string();
        assert!(said("-1").contains(&format!("`{key}` must not be negative")), "{}", said("-1"));
        let large = said("4398046511105");
        assert!(large.contains(&format!("`{key}` ")) && !large.contains("expected u"), "{large}");
        let longer = said("99999999999999999999");
        assert!(longer.contains("larger than any setting can be"), "{longer}");
        for no_number in ["", "many", "007"] {
            let message = said(no_number);
            assert!(message.contains("must be a whole number, such as"), "{message}");
            assert!(message.ends_with(&format!("not `{no_number}`")), "{message}");
        }
    }
}
