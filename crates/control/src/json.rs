//! JSON of our own types. Writing it to memory cannot fail, because their map keys are all text. A
//! fallback such as an empty text would be stored or answered as if it were right.

use serde::Serialize;
use serde_json::Value;

#[expect(clippy::expect_used, reason = "our types have text keys only, and nothing else can fail")]
pub fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a value with text keys")
}

#[expect(clippy::expect_used, reason = "our types have text keys only, and nothing else can fail")]
pub fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a value with text keys")
}

#[expect(clippy::expect_used, reason = "our types have text keys only, and nothing else can fail")]
pub fn value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a value with text keys")
}
