//! Reads and writes the parts of a content.

use super::calls::Calls;
use super::generations::NO_SIGNATURE;
use crate::chat::{Content, Part, Source, ToolCall};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::parts::{lose, plain};
use crate::dialect::{Losses, Unsayable};
use serde_json::{Value, json};

/// Where the parts that are read come from.
pub(super) enum Of<'c> {
    /// A request, with the calls so far.
    Conversation(&'c mut Calls),
    Answer(&'c mut Calls),
}

/// Reads one part of Gemini's, which becomes none, one or two of ours.
pub(super) fn read(
    value: &Value,
    at: At<'_>,
    of: &mut Of<'_>,
    parts: &mut Vec<Part>,
) -> Result<(), Unsayable> {
    let mut members = Members::of(value, at)?;
    let mut signature = members.owned("thoughtSignature")?.filter(|found| found != NO_SIGNATURE);
    let is_thought = members.flag("thought")?.unwrap_or(false);
    let content = if let Some(text) = members.text("text")? {
        match is_thought {
            true => thought(text, signature.take()),
            false => Some(Content::Text(text.to_owned())).filter(|_| !text.is_empty()),
        }
    } else if let Some(call) = members.value("functionCall") {
        Some(Content::ToolCall(read_call(call, at.name("functionCall"), of, signature.take())?))
    } else if let Some(result) = members.value("functionResponse") {
        Some(read_result(result, at.name("functionResponse"), of)?)
    } else if let Some(blob) = members.value("inlineData") {
        Some(read_blob(blob, at.name("inlineData"))?)
    } else if let Some(file) = members.value("fileData") {
        Some(read_file(file, at.name("fileData"))?)
    } else if let Some(text) = as_text(&mut members)? {
        // Kept completely next to the text, for dialects that can express it.
        let others = value.as_object().cloned().unwrap_or_default();
        parts.push(Part { content: Content::Text(text), others });
        return Ok(());
    } else {
        None
    };
    let others = members.others();
    if content.is_none() && !others.is_empty() {
        return Err(at.wrong("is none of the parts that are known here"));
    }
    if let Some(signature) = signature {
        parts.push(plain(Content::Reasoning {
            text: String::new(),
            signature: Some(signature),
            sealed: None,
        }));
    }
    parts.extend(content.map(|content| Part { content, others }));
    Ok(())
}

fn thought(text: &str, signature: Option<String>) -> Option<Content> {
    let is_empty = text.is_empty() && signature.is_none();
    let content = Content::Reasoning { text: text.to_owned(), signature, sealed: None };
    Some(content).filter(|_| !is_empty)
}

fn read_call(
    call: &Value,
    at: At<'_>,
    of: &mut Of<'_>,
    signature: Option<String>,
) -> Result<ToolCall, Unsayable> {
    let mut members = Members::of(call, at)?;
    let name = members.must("name")?;
    let arguments = match members.value("args") {
        Some(args @ Value::Object(_)) => args.to_string(),
        Some(_) => return Err(at.name("args").wrong("has to be an object")),
        None => "{}".to_owned(),
    };
    let id = members.text("id")?;
    let id = match of {
        Of::Conversation(calls) => calls.asked(id, name),
        Of::Answer(calls) => calls.begin(id, name, &arguments),
    };
    Ok(ToolCall { id, name: name.to_owned(), arguments, signature })
}

fn read_result(result: &Value, at: At<'_>, of: &mut Of<'_>) -> Result<Content, Unsayable> {
    let mut members = Members::of(result, at)?;
    let name = members.must("name")?;
    let Of::Conversation(calls) = of else {
        return Err(at.wrong("is no part of an answer"));
    };
    let call = calls.answered(members.text("id")?, name)?;
    let (text, is_error) = match members.value("response") {
        Some(response) => result_text(response),
        None => (None, false),
    };
    let mut content: Vec<_> = text.map(Content::Text).into_iter().collect();
    let at_parts = at.name("parts");
    for (index, part) in members.list("parts")?.iter().enumerate() {
        let at = at_parts.index(index);
        let mut members = Members::of(part, at)?;
        if let Some(blob) = members.value("inlineData") {
            content.push(read_blob(blob, at.name("inlineData"))?);
        } else if let Some(file) = members.value("fileData") {
            content.push(read_file(file, at.name("fileData"))?);
        } else {
            return Err(at.wrong("is none of the parts that are known here"));
        }
    }
    Ok(Content::ToolResult { call, name: Some(name.to_owned()), content, is_error })
}

/// Reads a result. `output` and `error` have their meaning only if they are the only member.
fn result_text(response: &Value) -> (Option<String>, bool) {
    let alone = |name: &str| {
        let map = response.as_object().filter(|map| map.len() == 1)?;
        map.get(name)
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match (alone("output"), alone("error")) {
        (Some(output), _) => (Some(text(output)), false),
        (_, Some(error)) => (Some(text(error)), true),
        _ => (Some(response.to_string()), false),
    }
}

fn read_blob(blob: &Value, at: At<'_>) -> Result<Content, Unsayable> {
    let mut members = Members::of(blob, at)?;
    let media_type = members.must("mimeType")?;
    let data = standard_base64(members.must("data")?);
    let name = members.owned("displayName")?;
    Ok(media(Source::Data { media_type: media_type.to_owned(), data }, media_type, name))
}

/// Turns URL-safe base64, which Google's own clients send, into the standard alphabet.
fn standard_base64(data: &str) -> String {
    let mut data = match data.contains(['-', '_']) {
        true => data.replace('-', "+").replace('_', "/"),
        false => data.to_owned(),
    };
    while !data.len().is_multiple_of(4) {
        data.push('=');
    }
    data
}

fn read_file(file: &Value, at: At<'_>) -> Result<Content, Unsayable> {
    let mut members = Members::of(file, at)?;
    let uri = members.must("fileUri")?;
    let media_type = members.text("mimeType")?.or_else(|| media_type_of(uri)).unwrap_or_default();
    let name = members.owned("displayName")?;
    let source = match is_uploaded(uri) {
        true => Source::Id(uri.to_owned()),
        false => Source::Url(uri.to_owned()),
    };
    Ok(media(source, media_type, name))
}

/// Returns whether only Google can fetch the file.
fn is_uploaded(uri: &str) -> bool {
    uri.starts_with("gs://")
        || uri.starts_with("https://generativelanguage.googleapis.com/")
        || !uri.contains("://")
}

fn media(source: Source, media_type: &str, name: Option<String>) -> Content {
    match media_type.split_once('/').map(|(kind, _)| kind) {
        Some("image") => Content::Image { source, detail: None },
        Some("audio") => Content::Audio { source },
        _ => Content::File { source, name },
    }
}

/// Guesses a media type from the end of the path. Google wants one, other providers look
/// themselves.
fn media_type_of(uri: &str) -> Option<&'static str> {
    let path = uri.split(['?', '#']).next()?;
    let end = path.rsplit('/').next()?.rsplit_once('.')?.1.to_ascii_lowercase();
    Some(match end.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "flac" => "audio/flac",
        "ogg" => "audio/ogg",
        "aac" => "audio/aac",
        "mp4" => "video/mp4",
        "mov" => "video/quicktime",
        "webm" => "video/webm",
        _ => return None,
    })
}

/// Shows code that Google ran, and its output, the way Google's answers show it to people.
fn as_text(members: &mut Members<'_>) -> Result<Option<String>, Unsayable> {
    let member = |value: Option<&Value>, name: &str| {
        let text = value.and_then(|value| value.get(name)).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    if let Some(code) = members.value("executableCode") {
        let code = member(Some(code), "code").unwrap_or_default();
        return Ok(Some(format!("```python\n{code}\n```\n")));
    }
    if let Some(result) = members.value("codeExecutionResult") {
        let output = member(Some(result), "output").unwrap_or_default();
        return Ok(Some(format!("```\n{output}\n```\n")));
    }
    Ok(None)
}

/// Members of parts that [`read`] keeps next to their text.
const KEPT: [&str; 2] = ["executableCode", "codeExecutionResult"];

/// Writes a part of a message by the user, the model or the system. `at` is for error messages.
pub(super) fn write(part: &Part, at: &str, losses: &mut Losses) -> Result<Value, Unsayable> {
    if KEPT.iter().any(|name| part.others.contains_key(*name)) {
        return Ok(Value::Object(part.others.clone()));
    }
    lose(&part.others, losses);
    write_content(&part.content, at, losses)
}

fn write_content(content: &Content, at: &str, losses: &mut Losses) -> Result<Value, Unsayable> {
    Ok(match content {
        Content::Text(text) => json!({ "text": text }),
        Content::Refusal(text) => {
            losses.note("refusal");
            json!({ "text": text })
        }
        Content::Image { source, detail } => {
            if detail.as_ref().is_some_and(|detail| detail != "auto") {
                losses.note("image_url.detail");
            }
            write_source(source, "image/jpeg", at)?
        }
        Content::Audio { source } => write_source(source, "audio/mpeg", at)?,
        Content::File { source, name } => {
            // Only Vertex AI has a place for the name, and the Gemini API refuses unknown members.
            if name.is_some() {
                losses.note("file.filename");
            }
            write_source(source, "application/pdf", at)?
        }
        Content::Reasoning { text, .. } => json!({ "text": text, "thought": true }),
        Content::ToolCall(_) | Content::ToolResult { .. } => {
            return Err(Unsayable::new(at, "cannot stand here"));
        }
    })
}

fn write_source(source: &Source, otherwise: &str, at: &str) -> Result<Value, Unsayable> {
    let (member, object) = match source {
        Source::Data { media_type, data } => {
            ("inlineData", Object::from_iter([("mimeType", media_type), ("data", data)]))
        }
        Source::Url(uri) | Source::Id(uri) => {
            let is_id = matches!(source, Source::Id(_));
            if is_id && !uri.contains("://") && !uri.starts_with("files/") {
                let why = "was uploaded to another provider, and Gemini does not have it";
                return Err(Unsayable::new(at, why));
            }
            let media_type = media_type_of(uri).unwrap_or(otherwise).to_owned();
            ("fileData", Object::from_iter([("mimeType", &media_type), ("fileUri", uri)]))
        }
    };
    Ok(json!({ member: Value::from(object) }))
}

impl<'a> FromIterator<(&'a str, &'a String)> for Object {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a String)>>(members: I) -> Self {
        let mut object = Self::default();
        for (name, text) in members {
            object.put(name, text.as_str());
        }
        object
    }
}

/// Writes a call. Returns `None` if the model did not write a JSON object.
pub(super) fn write_call(call: &ToolCall, has_ids: bool) -> Option<Value> {
    let args: Value = match call.arguments.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).ok().filter(Value::is_object)?,
    };
    let mut object = Object::default();
    if has_ids && !call.id.is_empty() {
        object.put("id", call.id.as_str());
    }
    object.put("name", call.name.as_str());
    object.put("args", args);
    Some(json!({ "functionCall": Value::from(object) }))
}

/// Writes the result of a call of the tool `name`. The first and second generation only read text
/// from tools; everything else goes into `beside`, to be shown by the user.
pub(super) fn write_result(
    content: &Content,
    name: &str,
    has_ids: bool,
    at: &str,
    beside: &mut Vec<Value>,
    losses: &mut Losses,
) -> Result<Value, Unsayable> {
    let Content::ToolResult { call, content, is_error, .. } = content else {
        return Err(Unsayable::new(at, "is no result of a tool"));
    };
    let (mut texts, mut media) = (Vec::new(), Vec::new());
    for content in content {
        match content {
            Content::Text(text) => {
                // Text comes first in this dialect.
                if !media.is_empty() {
                    losses.note("tool_result.content");
                }
                texts.push(text.as_str());
            }
            other => media.push(write_content(other, at, losses)?),
        }
    }
    let mut object = Object::default();
    if has_ids {
        object.put("id", call.as_str());
    }
    object.put("name", name);
    object.put("response", response(&texts.join("\n"), *is_error));
    if has_ids && !media.is_empty() {
        object.put("parts", media);
    } else if !media.is_empty() {
        losses.note("tool_result.content");
        beside.append(&mut media);
    }
    Ok(json!({ "functionResponse": Value::from(object) }))
}

/// Writes a tool's output. JSON stays JSON if that changes no significant byte, so that a model
/// reads it as the tool wrote it.
fn response(text: &str, is_error: bool) -> Value {
    if is_error {
        return json!({ "error": text });
    }
    if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
        let written = value.to_string();
        let is_same = written == without_spaces(text);
        if is_same && result_text(&value).0.is_some_and(|read| read == written) {
            return value;
        }
    }
    json!({ "output": text })
}

/// Removes the white space between the tokens of JSON.
fn without_spaces(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let keep = |c: &char| {
        let keeps = is_text || !c.is_ascii_whitespace();
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            _ => {}
        }
        keeps
    };
    json.chars().filter(keep).collect()
}
