//! A request for an answer, and the answer, in a neutral form that belongs to no dialect.
//!
//! Everything that any dialect can express has a place here, so that a writer sees what its own
//! dialect cannot express.

use serde_json::{Map, Number, Value};
use types::kinds::model::ModelType;
use types::models::TokenUsage;

/// Members that only one dialect has. A writer that cannot express one reports it as a loss.
pub type Others = Map<String, Value>;

/// A request for an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    pub model: String,
    /// The provider it goes to, if known: providers that share a dialect do not all accept the same
    /// members.
    pub provider: Option<ModelType>,
    /// In the order in which they were sent, including system messages.
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: Option<ToolChoice>,
    /// Whether several tools may be called at once.
    pub parallel_tools: Option<bool>,
    pub max_tokens: Option<u64>,
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<u64>,
    pub presence_penalty: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub stop: Vec<String>,
    pub seed: Option<i64>,
    pub format: Option<Format>,
    pub reasoning: Option<Reasoning>,
    /// How many answers are wanted.
    pub choices: Option<u64>,
    pub end_user: Option<String>,
    pub stream: bool,
    /// Whether the end of a stream reports the tokens used.
    pub stream_usage: bool,
    pub others: Others,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub name: Option<String>,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
    /// Results of tool calls.
    Tool,
}

/// One part of a message, with members that only its dialect has.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: Content,
    /// For example `cache_control`.
    pub others: Others,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(String),
    Image {
        source: Source,
        detail: Option<String>,
    },
    File {
        source: Source,
        name: Option<String>,
    },
    Audio {
        source: Source,
    },
    /// What a model thought: `signature` is the provider's proof that the text is the model's,
    /// `sealed` is reasoning that the provider encrypted.
    Reasoning {
        text: String,
        signature: Option<String>,
        sealed: Option<String>,
    },
    Refusal(String),
    ToolCall(ToolCall),
    ToolResult {
        call: String,
        name: Option<String>,
        content: Vec<Content>,
        is_error: bool,
    },
}

/// Where the content of an image, a file or audio is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Url(String),
    /// Encoded in base64.
    Data {
        media_type: String,
        data: String,
    },
    /// The id of a file that was uploaded to the provider earlier.
    Id(String),
}

/// A call of a tool, which the model asks for and the caller makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON as the model wrote it.
    pub arguments: String,
    /// Proof of the reasoning before the call, for providers that attach it to the call.
    pub signature: Option<String>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
    pub others: Others,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// The model must call at least one.
    Required,
    Named(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Format {
    Text,
    Json,
    Schema { name: String, description: Option<String>, schema: Value, strict: Option<bool> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    /// For example `low` or `high`.
    pub effort: Option<String>,
    pub budget_tokens: Option<u64>,
    /// The kind of summary that is wanted, if any.
    pub summary: Option<String>,
}

/// An answer. It has several choices if the request asked for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub id: String,
    pub model: String,
    /// Seconds since 1970.
    pub created: Option<i64>,
    pub choices: Vec<Choice>,
    pub usage: Option<TokenUsage>,
    pub others: Others,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub parts: Vec<Part>,
    pub finish: Finish,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    Stop,
    /// The answer reached one of the request's stop sequences.
    StopSequence(String),
    Length,
    ToolCalls,
    Filtered,
    Refused,
    /// The provider paused and expects a request to continue.
    Paused,
    /// Any other reason, in the provider's own word.
    Other(String),
}

/// What one piece of a stream adds to an answer. `choice` is the number of the answer, and `part`
/// the number of the part within it.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Begin {
        id: String,
        model: String,
        created: Option<i64>,
    },
    Text {
        choice: u32,
        text: String,
    },
    Refusal {
        choice: u32,
        text: String,
    },
    Reasoning {
        choice: u32,
        text: String,
    },
    /// Proof of the reasoning before it, or, if sealed, the whole of the reasoning.
    ReasoningProof {
        choice: u32,
        signature: Option<String>,
        sealed: Option<String>,
    },
    /// `part` is the number of the call within this answer.
    ToolBegin {
        choice: u32,
        part: u32,
        id: String,
        name: String,
        signature: Option<String>,
    },
    ToolArguments {
        choice: u32,
        part: u32,
        text: String,
    },
    Finish {
        choice: u32,
        finish: Finish,
    },
    /// Everything used so far.
    Usage(TokenUsage),
    /// Keeps the connection alive.
    Ping,
    Fault(Fault),
    End,
}

/// An error as a provider reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    pub status: u16,
    /// The provider's name for it, such as `invalid_request_error`.
    pub kind: Option<String>,
    pub code: Option<String>,
    pub parameter: Option<String>,
    pub message: String,
}

/// What is known of a stream that was passed on without being translated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    pub id: String,
    pub model: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The number of the next event, in a dialect that numbers them.
    pub next_event: u64,
}
