//! Translates one call for embeddings from one dialect into another.
//!
//! Gemini is always called with `batchEmbedContents`. Cohere must be told the purpose
//! (`input_type`); if the caller does not say, it is documents.

mod neutral;
mod read;
mod write;

use crate::dialect::{Dialect, Losses, Unreadable, Unsayable};
use crate::translate::fault_body;
use neutral::Asked;
use serde_json::Value;

/// The translation of one call.
#[derive(Debug, Clone)]
pub struct EmbeddingsTranslation {
    from: Dialect,
    to: Dialect,
    model: String,
    asked: Asked,
    losses: Losses,
}

/// Translates a request. `model` is the provider's name for the model.
pub fn translate_request(
    from: Dialect,
    to: Dialect,
    body: &Value,
    model: &str,
) -> Result<(EmbeddingsTranslation, Vec<u8>), Unsayable> {
    let mut losses = Losses::default();
    let asked = read::request(from, body, &mut losses)?;
    let written = write::request(to, &asked, model, &mut losses)?;
    let model = model.to_owned();
    let translation = EmbeddingsTranslation { from, to, model, asked, losses };
    Ok((translation, written.to_string().into_bytes()))
}

impl EmbeddingsTranslation {
    /// Returns what the request to the provider could not express, by its names in the caller's
    /// request.
    pub fn losses(&self) -> &[String] {
        &self.losses.0
    }

    /// Translates an answer. `counted` is reported if the provider does not say how many tokens it
    /// read.
    pub fn answer(&self, body: &[u8], counted: u64) -> Result<Vec<u8>, Unreadable> {
        let body: Value =
            serde_json::from_slice(body).map_err(|_| Unreadable("it is not JSON".to_owned()))?;
        let mut answered = read::answer(self.to, &body)?;
        let (wanted, found) = (self.asked.inputs.len(), answered.vectors.len());
        if wanted != found {
            return Err(Unreadable(format!("it has {found} embeddings of {wanted} inputs")));
        }
        answered.input_tokens.get_or_insert(counted);
        let written = write::answer(self.from, &self.asked, &answered, &self.model)?;
        Ok(written.to_string().into_bytes())
    }

    /// Translates a provider's error for the caller. The status stays the same.
    pub fn fault(&self, status: u16, body: &[u8]) -> Vec<u8> {
        fault_body(self.from, &self.to.words().read_fault(status, body))
    }
}

#[cfg(test)]
mod tests;
