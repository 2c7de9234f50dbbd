//! One call for embeddings from one dialect into another.
//!
//! What is asked of Gemini is always a `batchEmbedContents`. Cohere has to be told what for
//! (`input_type`): where a caller does not say, it is for documents.

mod read;
mod write;

use crate::dialect::{Dialect, Losses, Unreadable, Unsayable};
use crate::translate::fault_body;
use serde_json::{Number, Value};

/// What is asked for, in nobody's dialect.
#[derive(Debug, Clone, Default, PartialEq)]
struct Asked {
    inputs: Vec<String>,
    purpose: Option<Purpose>,
    dimensions: Option<u64>,
    form: Form,
    /// Whether one is asked for as one, and not as a list of one.
    is_one: bool,
}

/// In which form the caller wants the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Floats,
    /// Of 32 bits each, the lowest byte first.
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Query,
    Document,
    Classification,
    Clustering,
}

/// What is answered, in nobody's dialect.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answered {
    vectors: Vec<Vec<Number>>,
    input_tokens: Option<u64>,
}

/// One call.
#[derive(Debug, Clone)]
pub struct EmbeddingsTranslation {
    from: Dialect,
    to: Dialect,
    model: String,
    asked: Asked,
    losses: Losses,
}

/// `model` is what the provider calls it.
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
    /// What the request to the provider could not say, by the names that the request has for it.
    pub fn losses(&self) -> &[String] {
        &self.losses.0
    }

    /// Where the provider does not say how many tokens it read, `counted` is said.
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

    /// A provider's error for the caller. The status stays.
    pub fn fault(&self, status: u16, body: &[u8]) -> Vec<u8> {
        fault_body(self.from, &self.to.words().read_fault(status, body))
    }
}

fn has_none(dialect: Dialect) -> Unsayable {
    Unsayable::new("body", format!("embeddings cannot be asked for as {}", dialect.name()))
}

#[cfg(test)]
mod tests;
