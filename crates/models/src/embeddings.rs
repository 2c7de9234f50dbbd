//! Translates one call for embeddings from one dialect into another.
//!
//! Gemini is always called with `batchEmbedContents`. Cohere must be told the purpose
//! (`input_type`); if the caller does not say, it is documents.

mod read;
mod write;

use crate::dialect::{Dialect, Losses, Unreadable, Unsayable};
use crate::translate::fault_body;
use serde_json::{Number, Value};

/// A request in a neutral form that belongs to no dialect.
#[derive(Debug, Clone, Default, PartialEq)]
struct Asked {
    inputs: Vec<String>,
    purpose: Option<Purpose>,
    dimensions: Option<u64>,
    form: Form,
    /// Whether a single input was sent by itself rather than as a list of one.
    is_one: bool,
}

/// The form in which the caller wants the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Floats,
    /// 32-bit floats, little-endian.
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Query,
    Document,
    Classification,
    Clustering,
}

/// An answer in a neutral form.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answered {
    vectors: Vec<Vec<Number>>,
    input_tokens: Option<u64>,
}

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

fn has_none(dialect: Dialect) -> Unsayable {
    Unsayable::new("body", format!("embeddings cannot be asked for as {}", dialect.name()))
}

#[cfg(test)]
mod tests;
