//! Reads requests and answers.

use super::neutral::{Answered, Asked, Form, Purpose, has_none};
use crate::dialect::gemini;
use crate::dialect::members::{At, Members};
use crate::dialect::{Dialect, Losses, Unreadable, Unsayable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

pub(super) fn request(
    from: Dialect,
    body: &Value,
    losses: &mut Losses,
) -> Result<Asked, Unsayable> {
    let asked = match from {
        Dialect::OpenAi => openai(body, losses)?,
        Dialect::Gemini => googles(&gemini::camel_case(body), losses)?,
        Dialect::Cohere => cohere(body, losses)?,
        Dialect::Responses | Dialect::Anthropic => return Err(has_none(from)),
    };
    if asked.inputs.is_empty() {
        return Err(Unsayable::new("input", "is missing"));
    }
    Ok(asked)
}

fn lose(members: Members<'_>, losses: &mut Losses) {
    members.others().keys().for_each(|name| losses.note(name));
}

fn texts(list: &[Value], at: At<'_>) -> Result<Vec<String>, Unsayable> {
    let text = |(index, value): (usize, &Value)| {
        let text = value.as_str().ok_or_else(|| at.index(index).wrong("has to be text"))?;
        Ok(text.to_owned())
    };
    list.iter().enumerate().map(text).collect()
}

fn openai(body: &Value, losses: &mut Losses) -> Result<Asked, Unsayable> {
    let mut members = Members::of(body, At::BODY)?;
    members.value("model");
    let at = At::BODY.name("input");
    let inputs = match members.value("input") {
        None => return Err(at.wrong("is missing")),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) if list.iter().any(|one| one.is_number() || one.is_array()) => {
            return Err(at.wrong("is in tokens, and every model has other ones: send text"));
        }
        Some(Value::Array(list)) => texts(list, at)?,
        Some(_) => return Err(at.wrong("has to be text or a list of texts")),
    };
    let form = match members.text("encoding_format")? {
        None | Some("float") => Form::Floats,
        Some("base64") => Form::Base64,
        Some(_) => return Err(members.wrong("encoding_format", "has to be `float` or `base64`")),
    };
    let dimensions = members.count("dimensions")?;
    // OpenAI does not have this, but many use OpenAI's client to send it to other providers.
    let purpose = input_type(&mut members)?;
    lose(members, losses);
    Ok(Asked { inputs, purpose, dimensions, form, is_one: false })
}

fn input_type(members: &mut Members<'_>) -> Result<Option<Purpose>, Unsayable> {
    Ok(match members.text("input_type")? {
        None => None,
        Some("search_query" | "query") => Some(Purpose::Query),
        Some("search_document" | "document" | "passage") => Some(Purpose::Document),
        Some("classification") => Some(Purpose::Classification),
        Some("clustering") => Some(Purpose::Clustering),
        Some(_) => return Err(members.wrong("input_type", "is not known here")),
    })
}

/// Reads a single request, or `requests`, all of which must ask for the same settings.
fn googles(body: &Value, losses: &mut Losses) -> Result<Asked, Unsayable> {
    let mut members = Members::of(body, At::BODY)?;
    members.value("model");
    let at = At::BODY.name("requests");
    let Some(requests) = members.value("requests") else {
        let asked = google(body, At::BODY, losses)?;
        return Ok(Asked { is_one: true, ..asked });
    };
    let requests = requests.as_array().ok_or_else(|| at.wrong("has to be a list"))?;
    let mut all: Option<Asked> = None;
    for (index, request) in requests.iter().enumerate() {
        let at = at.index(index);
        let one = google(request, at, losses)?;
        match &mut all {
            None => all = Some(one),
            Some(all) if (all.purpose, all.dimensions) == (one.purpose, one.dimensions) => {
                all.inputs.extend(one.inputs);
            }
            Some(_) => return Err(at.wrong("has to want the same as the first one does")),
        }
    }
    lose(members, losses);
    Ok(all.unwrap_or_default())
}

fn google(request: &Value, at: At<'_>, losses: &mut Losses) -> Result<Asked, Unsayable> {
    let mut members = Members::of(request, at)?;
    members.value("model");
    let at = at.name("content");
    let content = members.value("content").ok_or_else(|| at.wrong("is missing"))?;
    let purpose = match members.text("taskType")? {
        None | Some("TASK_TYPE_UNSPECIFIED") => None,
        Some("RETRIEVAL_QUERY" | "QUESTION_ANSWERING" | "CODE_RETRIEVAL_QUERY") => {
            Some(Purpose::Query)
        }
        Some("RETRIEVAL_DOCUMENT") => Some(Purpose::Document),
        Some("CLASSIFICATION") => Some(Purpose::Classification),
        Some("CLUSTERING") => Some(Purpose::Clustering),
        Some(_) => {
            losses.note("taskType");
            None
        }
    };
    let dimensions = members.count("outputDimensionality")?;
    lose(members, losses);
    let mut members = Members::of(content, at)?;
    members.value("role");
    let at = at.name("parts");
    let parts = match members.value("parts") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => return Err(at.wrong("is missing")),
    };
    let mut said = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let text = part.get("text").and_then(Value::as_str);
        said.push(text.ok_or_else(|| at.index(index).wrong("has to be text"))?);
    }
    let inputs = vec![said.join("\n")];
    Ok(Asked { inputs, purpose, dimensions, ..Asked::default() })
}

fn cohere(body: &Value, losses: &mut Losses) -> Result<Asked, Unsayable> {
    let mut members = Members::of(body, At::BODY)?;
    members.value("model");
    if !members.list("images")?.is_empty() {
        return Err(members.wrong("images", "is understood by Cohere only"));
    }
    let mut inputs = texts(members.list("texts")?, At::BODY.name("texts"))?;
    let at = At::BODY.name("inputs");
    for (index, input) in members.list("inputs")?.iter().enumerate() {
        inputs.push(mixed(input, at.index(index))?);
    }
    let purpose = input_type(&mut members)?;
    let dimensions = members.count("output_dimension")?;
    let form = match members.list("embedding_types")? {
        [] => Form::Floats,
        [one] if one == "float" => Form::Floats,
        [one] if one == "base64" => Form::Base64,
        _ => return Err(members.wrong("embedding_types", "has to be one: `float` or `base64`")),
    };
    lose(members, losses);
    Ok(Asked { inputs, purpose, dimensions, form, is_one: false })
}

fn mixed(input: &Value, at: At<'_>) -> Result<String, Unsayable> {
    let mut members = Members::of(input, at)?;
    let at = at.name("content");
    let mut said = Vec::new();
    for (index, part) in members.list("content")?.iter().enumerate() {
        let text = part.get("text").and_then(Value::as_str);
        said.push(text.ok_or_else(|| at.index(index).wrong("has to be text"))?);
    }
    Ok(said.join("\n"))
}

pub(super) fn answer(to: Dialect, body: &Value) -> Result<Answered, Unreadable> {
    match to {
        Dialect::OpenAi => openai_answer(body),
        Dialect::Gemini => google_answer(body),
        Dialect::Cohere => cohere_answer(body),
        Dialect::Responses | Dialect::Anthropic => Err(has_none(to).into()),
    }
}

fn missing(name: &str) -> Unreadable {
    Unreadable(format!("it has no `{name}`"))
}

fn openai_answer(body: &Value) -> Result<Answered, Unreadable> {
    let data = body["data"].as_array().ok_or_else(|| missing("data"))?;
    let mut found = Vec::new();
    for (place, one) in data.iter().enumerate() {
        let index = one["index"].as_u64().unwrap_or(place as u64);
        found.push((index, vector(&one["embedding"])?));
    }
    found.sort_by_key(|(index, _)| *index);
    let vectors = found.into_iter().map(|(_, vector)| vector).collect();
    Ok(Answered { vectors, input_tokens: body["usage"]["prompt_tokens"].as_u64() })
}

fn google_answer(body: &Value) -> Result<Answered, Unreadable> {
    let list = match body["embeddings"].as_array() {
        Some(list) => list.as_slice(),
        None if body["embedding"].is_object() => std::slice::from_ref(&body["embedding"]),
        None => return Err(missing("embeddings")),
    };
    let vectors = list.iter().map(|one| vector(&one["values"])).collect::<Result<_, _>>()?;
    Ok(Answered { vectors, input_tokens: body["usageMetadata"]["promptTokenCount"].as_u64() })
}

fn cohere_answer(body: &Value) -> Result<Answered, Unreadable> {
    let embeddings = &body["embeddings"];
    let older = embeddings.as_array();
    let list = embeddings["float"].as_array().or(older).ok_or_else(|| missing("embeddings"))?;
    let vectors = list.iter().map(vector).collect::<Result<_, _>>()?;
    let billed = &body["meta"]["billed_units"]["input_tokens"];
    let rounded = || format!("{:.0}", billed.as_f64()?).parse().ok();
    Ok(Answered { vectors, input_tokens: billed.as_u64().or_else(rounded) })
}

/// Reads numbers as they were written.
fn vector(value: &Value) -> Result<Vec<Number>, Unreadable> {
    match value {
        Value::Array(list) => {
            let number = |value: &Value| value.as_number().cloned();
            let numbers: Option<_> = list.iter().map(number).collect();
            numbers.ok_or_else(|| Unreadable("an embedding is not of numbers".to_owned()))
        }
        Value::String(text) => of_base64(text),
        _ => Err(missing("embedding")),
    }
}

fn of_base64(text: &str) -> Result<Vec<Number>, Unreadable> {
    let wrong = || Unreadable("an embedding is no base64 of numbers".to_owned());
    let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
    let (floats, []) = bytes.as_chunks::<4>() else { return Err(wrong()) };
    let number = |bytes: &[u8; 4]| {
        let float = f32::from_le_bytes(*bytes);
        // Converted by way of its shortest text, so that 0.1 stays 0.1.
        float.to_string().parse().ok().and_then(Number::from_f64)
    };
    floats.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)
}
