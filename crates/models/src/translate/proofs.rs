//! Marks proofs of a model's thoughts with the provider that made them.
//!
//! Only the provider that made a proof understands it. A caller carries it from one request to the
//! next without looking at it, and the next request may go to another provider, which would refuse
//! it. So a proof that is passed on in another dialect gets its maker's name, and is opened again
//! only for that maker.
//!
//! A marked proof is base64 as a whole, because clients of some dialects read it as bytes.

use crate::chat::{Answer, Chat, Content, Delta, Message, Part};
use crate::dialect::proof_mark::MARK;
use crate::dialect::{Dialect, Losses};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// [`MARK`] before it is encoded in base64.
const OPEN_MARK: &str = "holm1:";

/// Returns whether a body may contain marked proofs, which no provider understands. They must be
/// opened even if the body is otherwise passed on unchanged.
pub fn has_proofs(body: &[u8]) -> bool {
    memchr::memmem::find(body, MARK.as_bytes()).is_some()
}

/// Opens the proofs in a body that stays in its dialect, and removes those of other makers. Returns
/// the losses.
pub fn open_in_place(to: Dialect, body: &mut Value) -> Vec<String> {
    let mut losses = Losses::default();
    open_value(to, body, &mut losses);
    losses.0
}

/// The members that hold proofs, in all dialects.
const NAMES: [&str; 5] =
    ["signature", "data", "encrypted_content", "thoughtSignature", "thought_signature"];

/// Opens the proofs within a value. Returns false if the value has to be removed.
fn open_value(to: Dialect, value: &mut Value, losses: &mut Losses) -> bool {
    let map = match value {
        Value::Array(list) => {
            list.retain_mut(|value| open_value(to, value, losses));
            return true;
        }
        Value::Object(map) => map,
        _ => return true,
    };
    for name in NAMES {
        let Some(Value::String(closed)) = map.get_mut(name) else { continue };
        if !closed.starts_with(MARK) {
            continue;
        }
        if let Some((_, proof)) = opened(to, closed) {
            *closed = proof;
            continue;
        }
        let kind = map.get("type").and_then(Value::as_str);
        if matches!(kind, Some("thinking" | "redacted_thinking" | "reasoning")) {
            losses.note("reasoning.signature");
            return false;
        }
        losses.note("tool_call.signature");
        map.shift_remove(name);
    }
    for value in map.values_mut() {
        open_value(to, value, losses);
    }
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Signature,
    Sealed,
}

const fn letter(dialect: Dialect) -> char {
    match dialect {
        Dialect::OpenAi => 'o',
        Dialect::Responses => 'r',
        Dialect::Anthropic => 'a',
        Dialect::Gemini => 'g',
        Dialect::Cohere => 'c',
    }
}

fn close(maker: Dialect, what: What, proof: &str) -> String {
    let what = match what {
        What::Signature => '=',
        What::Sealed => '#',
    };
    STANDARD.encode(format!("{OPEN_MARK}{}{what}{proof}", letter(maker)))
}

/// Opens a marked proof. Returns `None` if it is not one of `maker`'s.
fn opened(maker: Dialect, closed: &str) -> Option<(What, String)> {
    if !closed.starts_with(MARK) {
        return None;
    }
    // Some clients encode it with the URL-safe alphabet.
    let standard = closed.replace('-', "+").replace('_', "/");
    let open = String::from_utf8(STANDARD.decode(standard).ok()?).ok()?;
    let rest = open.strip_prefix(OPEN_MARK)?.strip_prefix(letter(maker))?;
    match rest.split_at_checked(1)? {
        ("=", proof) => Some((What::Signature, proof.to_owned())),
        ("#", proof) => Some((What::Sealed, proof.to_owned())),
        _ => None,
    }
}

pub(super) fn seal(answer: &mut Answer, maker: Dialect) {
    for part in answer.choices.iter_mut().flat_map(|choice| &mut choice.parts) {
        match &mut part.content {
            Content::Reasoning { signature, sealed, .. } => seal_both(signature, sealed, maker),
            Content::ToolCall(call) => seal_both(&mut call.signature, &mut None, maker),
            _ => {}
        }
    }
}

pub(super) fn seal_delta(delta: &mut Delta, maker: Dialect) {
    match delta {
        Delta::ReasoningProof { signature, sealed, .. } => seal_both(signature, sealed, maker),
        Delta::ToolBegin { signature, .. } => seal_both(signature, &mut None, maker),
        _ => {}
    }
}

fn seal_both(signature: &mut Option<String>, sealed: &mut Option<String>, maker: Dialect) {
    for (proof, what) in [(signature, What::Signature), (sealed, What::Sealed)] {
        if let Some(open) = proof {
            *open = close(maker, what, open);
        }
    }
}

/// Opens the proofs that `to` made, and removes all others.
pub(super) fn open(chat: &mut Chat, to: Dialect, losses: &mut Losses) {
    for Message { parts, .. } in &mut chat.messages {
        parts.retain_mut(|part| open_part(part, to, losses));
    }
    chat.messages.retain(|message| !message.parts.is_empty());
}

/// Opens the proofs of a part. Returns false if the part has to be removed.
fn open_part(part: &mut Part, to: Dialect, losses: &mut Losses) -> bool {
    match &mut part.content {
        Content::Reasoning { text, signature, sealed } => {
            let had = signature.is_some() || sealed.is_some();
            let found = [signature.take(), sealed.take()];
            for (what, proof) in found.iter().flatten().filter_map(|closed| opened(to, closed)) {
                match what {
                    What::Signature => *signature = Some(proof),
                    What::Sealed => *sealed = Some(proof),
                }
            }
            if had && signature.is_none() && sealed.is_none() {
                losses.note("reasoning.signature");
            }
            !text.is_empty() || signature.is_some() || sealed.is_some()
        }
        Content::ToolCall(call) => {
            if let Some(closed) = call.signature.take() {
                call.signature = opened(to, &closed).map(|(_, proof)| proof);
                if call.signature.is_none() {
                    losses.note("tool_call.signature");
                }
            }
            true
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasoning(text: &str, signature: Option<&str>, sealed: Option<&str>) -> Part {
        let owned = |proof: Option<&str>| proof.map(str::to_owned);
        let (signature, sealed) = (owned(signature), owned(sealed));
        let text = text.to_owned();
        Part {
            content: Content::Reasoning { text, signature, sealed },
            others: crate::chat::Others::new(),
        }
    }

    #[test]
    fn a_proof_is_opened_for_its_maker_alone() {
        let mut closed = reasoning("hm", Some("ErUB+/=="), None);
        let Content::Reasoning { signature, sealed, .. } = &mut closed.content else { panic!() };
        seal_both(signature, sealed, Dialect::Anthropic);
        assert!(has_proofs(signature.as_ref().unwrap().as_bytes()));
        // As clients write it that decode it to bytes and encode it again.
        *signature = signature.as_ref().map(|text| text.replace('+', "-").replace('/', "_"));
        let mut chat = Chat::default();
        chat.messages.push(Message {
            role: crate::chat::Role::Assistant,
            name: None,
            parts: vec![closed],
        });
        let mut losses = Losses::default();
        let mut same = chat.clone();
        open(&mut same, Dialect::Anthropic, &mut losses);
        assert_eq!(same.messages[0].parts, [reasoning("hm", Some("ErUB+/=="), None)]);
        assert_eq!(losses.0, Vec::<String>::new());
        open(&mut chat, Dialect::Responses, &mut losses);
        assert_eq!(chat.messages[0].parts, [reasoning("hm", None, None)]);
        assert_eq!(losses.0, ["reasoning.signature"]);
    }

    #[test]
    fn thoughts_of_which_nothing_is_left_are_left_out() {
        let mut chat = Chat::default();
        chat.messages.push(Message {
            role: crate::chat::Role::Assistant,
            name: None,
            parts: vec![reasoning("", None, Some("somebody's"))],
        });
        open(&mut chat, Dialect::Anthropic, &mut Losses::default());
        assert_eq!(chat.messages, []);
    }
}
