//! Writes requests and answers.

use super::neutral::{Answered, Asked, Form, Purpose, has_none};
use crate::dialect::members::Object;
use crate::dialect::{Dialect, Losses, Unreadable, Unsayable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value, json};

pub(super) fn request(
    to: Dialect,
    asked: &Asked,
    model: &str,
    losses: &mut Losses,
) -> Result<Value, Unsayable> {
    match to {
        Dialect::OpenAi => Ok(openai(asked, model, losses)),
        Dialect::Gemini => Ok(googles(asked, model)),
        Dialect::Cohere => Ok(cohere(asked, model)),
        Dialect::Responses | Dialect::Anthropic => Err(has_none(to)),
    }
}

fn openai(asked: &Asked, model: &str, losses: &mut Losses) -> Value {
    if asked.purpose.is_some() {
        losses.note("input_type");
    }
    let mut body = Object::default();
    body.put("model", model);
    body.put("input", asked.inputs.clone());
    body.put("encoding_format", "float");
    body.maybe("dimensions", asked.dimensions);
    body.into()
}

fn googles(asked: &Asked, model: &str) -> Value {
    // In this dialect the body repeats the name, with its kind in front.
    let model = match model.contains('/') {
        true => model.to_owned(),
        false => format!("models/{model}"),
    };
    let purpose = asked.purpose.map(|purpose| match purpose {
        Purpose::Query => "RETRIEVAL_QUERY",
        Purpose::Document => "RETRIEVAL_DOCUMENT",
        Purpose::Classification => "CLASSIFICATION",
        Purpose::Clustering => "CLUSTERING",
    });
    let request = |text: &String| {
        let mut request = Object::default();
        request.put("model", model.as_str());
        request.put("content", json!({ "parts": [{ "text": text }] }));
        request.maybe("taskType", purpose);
        request.maybe("outputDimensionality", asked.dimensions);
        Value::from(request)
    };
    json!({ "requests": asked.inputs.iter().map(request).collect::<Vec<_>>() })
}

fn cohere(asked: &Asked, model: &str) -> Value {
    let purpose = match asked.purpose.unwrap_or(Purpose::Document) {
        Purpose::Query => "search_query",
        Purpose::Document => "search_document",
        Purpose::Classification => "classification",
        Purpose::Clustering => "clustering",
    };
    let mut body = Object::default();
    body.put("model", model);
    body.put("texts", asked.inputs.clone());
    body.put("input_type", purpose);
    body.put("embedding_types", json!(["float"]));
    body.maybe("output_dimension", asked.dimensions);
    body.into()
}

/// Writes an answer for the caller, in the form that was asked for.
pub(super) fn answer(
    from: Dialect,
    asked: &Asked,
    answered: &Answered,
    model: &str,
) -> Result<Value, Unreadable> {
    let tokens = answered.input_tokens.unwrap_or(0);
    let vectors = answered.vectors.iter();
    match from {
        Dialect::OpenAi => {
            let one = |(index, vector): (usize, &Vec<Number>)| {
                let embedding = form(vector, asked.form);
                json!({ "object": "embedding", "index": index, "embedding": embedding })
            };
            Ok(json!({
                "object": "list",
                "data": vectors.enumerate().map(one).collect::<Vec<_>>(),
                "model": model,
                "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
            }))
        }
        Dialect::Gemini => {
            let mut list: Vec<_> = vectors.map(|vector| json!({ "values": vector })).collect();
            let mut body = Object::default();
            match list.pop() {
                Some(one) if asked.is_one => body.put("embedding", one),
                last => {
                    list.extend(last);
                    body.put("embeddings", list);
                }
            }
            body.put("usageMetadata", json!({ "promptTokenCount": tokens }));
            Ok(body.into())
        }
        Dialect::Cohere => {
            let name = match asked.form {
                Form::Floats => "float",
                Form::Base64 => "base64",
            };
            let list: Vec<_> = vectors.map(|vector| form(vector, asked.form)).collect();
            Ok(json!({
                "id": "",
                "embeddings": { name: list },
                "texts": asked.inputs,
                "meta": {
                    "api_version": { "version": "2" },
                    "billed_units": { "input_tokens": tokens },
                },
                "response_type": "embeddings_by_type",
            }))
        }
        Dialect::Responses | Dialect::Anthropic => Err(has_none(from).into()),
    }
}

fn form(vector: &[Number], form: Form) -> Value {
    match form {
        Form::Floats => Value::Array(vector.iter().cloned().map(Value::Number).collect()),
        Form::Base64 => {
            let bytes: Vec<u8> =
                vector.iter().flat_map(|number| single(number).to_le_bytes()).collect();
            Value::from(STANDARD.encode(bytes))
        }
    }
}

/// Converts a number to the nearest one with 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the form has 32 bits for each")]
fn single(number: &Number) -> f32 {
    number.as_f64().unwrap_or(f64::NAN) as f32
}
