//! What is answered, independent of any dialect.

use crate::behaviour::Behaviour;
use serde_json::{Map, Value, json};

const WORDS: [&str; 8] =
    ["Hello", " from", " a", " stand-in", " that", " counts", " its", " tokens"];
const THOUGHTS: [&str; 4] = ["Let", " me", " think", " twice."];
/// Characters of a piece of JSON.
const JSON_PIECE: usize = 6;

/// The parts of a request that decide on the answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) wants_usage: bool,
    pub(crate) max_tokens: Option<usize>,
    /// Names, and schemas of arguments.
    pub(crate) tools: Vec<(String, Value)>,
    /// Whether results of tools are among the messages already.
    pub(crate) has_results: bool,
    pub(crate) schema: Option<Value>,
    /// Whether JSON is wanted, without a schema.
    pub(crate) json: bool,
    pub(crate) images: usize,
    pub(crate) input: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    Tools,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) thoughts: Vec<String>,
    pub(crate) text: Vec<String>,
    pub(crate) calls: Vec<Call>,
    pub(crate) finish: Finish,
    /// `None` means the answer does not report it.
    pub(crate) usage: Option<Usage>,
    pub(crate) used: Usage,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) reasoning: u64,
}

impl Reply {
    pub(crate) fn to(asked: &Asked, behaviour: &Behaviour, number: u64) -> Self {
        let thoughts = cycle(&THOUGHTS, behaviour.reasoning);
        let calls = calls(asked, behaviour);
        let (mut text, mut finish) = (Vec::new(), Finish::Stop);
        if calls.is_empty() {
            text = words(asked, behaviour);
            let room = asked.max_tokens.unwrap_or(usize::MAX).saturating_sub(thoughts.len());
            if text.len() > room {
                text.truncate(room);
                finish = Finish::Length;
            }
        } else {
            finish = Finish::Tools;
        }
        let arguments = calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        let used = Usage {
            input: asked.input,
            output: (thoughts.len() + text.len() + arguments) as u64,
            cached: behaviour.cached.min(asked.input),
            reasoning: thoughts.len() as u64,
        };
        let usage = (!behaviour.no_usage).then_some(used);
        let (id, model) = (format!("{number:024x}"), asked.model.clone());
        Self { id, model, thoughts, text, calls, finish, usage, used }
    }

    pub(crate) fn whole_text(&self) -> String {
        self.text.concat()
    }
}

impl Call {
    pub(crate) fn whole(&self) -> String {
        self.arguments.concat()
    }
}

fn cycle(words: &[&str], count: usize) -> Vec<String> {
    words.iter().cycle().take(count).map(|word| (*word).to_owned()).collect()
}

fn words(asked: &Asked, behaviour: &Behaviour) -> Vec<String> {
    if behaviour.huge > 0 {
        return vec!["x".repeat(behaviour.huge)];
    }
    if let Some(schema) = &asked.schema {
        return pieces(&sample(schema, schema).to_string());
    }
    if asked.json {
        return pieces(r#"{"answer": "Paris"}"#);
    }
    let mut words = cycle(&WORDS, behaviour.out.unwrap_or(WORDS.len()));
    if let Some(first) = words.first_mut().filter(|_| asked.images > 0) {
        *first = format!("[{} images] {first}", asked.images);
    }
    words
}

fn calls(asked: &Asked, behaviour: &Behaviour) -> Vec<Call> {
    if behaviour.text || asked.has_results {
        return Vec::new();
    }
    let wanted = asked.tools.iter().cycle().take(behaviour.tools.unwrap_or(1));
    // Without tools there is nothing to repeat.
    let wanted = wanted.take_while(|_| !asked.tools.is_empty()).enumerate();
    wanted
        .map(|(count, (name, schema))| Call {
            id: format!("call_{count}{:08x}", asked.input),
            name: name.clone(),
            arguments: pieces(&sample(schema, schema).to_string()),
        })
        .collect()
}

fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(JSON_PIECE).map(|piece| piece.iter().collect()).collect()
}

/// Returns a value that matches a schema, as far as the tests need it.
fn sample(schema: &Value, root: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let found = name.strip_prefix('#').and_then(|path| root.pointer(path));
        return found.map_or(Value::Null, |schema| sample(schema, root));
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if let Some(first) = schema["anyOf"].get(0).or_else(|| schema["allOf"].get(0)) {
        return sample(first, root);
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind.to_ascii_lowercase().as_str() {
        "string" => json!("Paris"),
        "integer" => json!(7),
        "number" => json!(7.5),
        "boolean" => json!(true),
        "array" => json!([sample(&schema["items"], root)]),
        "null" => Value::Null,
        _ => {
            let members = schema["properties"].as_object().into_iter().flatten();
            let members = members.map(|(name, schema)| (name.clone(), sample(schema, root)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}
