//! Differences between the models and providers that speak this dialect.

use crate::chat::Chat;
use types::kinds::model::ModelType;

/// Returns whether this is one of OpenAI's models that refuse `max_tokens`. All other models know
/// that name, and not every compatible provider knows the newer one.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit(['/', ':']).next().unwrap_or(model);
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(rest) = name.strip_prefix("gpt-") {
        return rest[..digits(rest)].parse::<u32>().is_ok_and(|version| version >= 5);
    }
    name.strip_prefix('o').is_some_and(|rest| digits(rest) > 0)
}

/// Returns whether Mistral is called, which refuses every member that it does not know.
pub(super) fn is_mistral(chat: &Chat) -> bool {
    chat.provider == Some(ModelType::Mistral)
}
