//! A request for an answer, and the answer, in nobody's dialect: what any of them can say has a
//! place here, so that what another cannot say is seen where it is written.

use serde_json::{Map, Number, Value};
use types::kinds::model::ModelType;
use types::models::TokenUsage;

/// Members of one dialect that no other has. Where they cannot be said, that is told.
pub type Others = Map<String, Value>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    pub model: String,
    /// Whom it goes to, where that is known: those who speak one dialect do not all take the same.
    pub provider: Option<ModelType>,
    /// In the order in which they were sent, system messages among them.
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
    /// Whether the end of a stream says what was used.
    pub stream_usage: bool,
    pub others: Others,
}

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
    /// Results of tools.
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: Content,
    /// Such as `cache_control`.
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
    /// What a model thought. With the provider's own proof that it did, or sealed by it.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Url(String),
    /// In base64.
    Data {
        media_type: String,
        data: String,
    },
    /// What was uploaded to the provider before.
    Id(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON as the model wrote it.
    pub arguments: String,
    /// Proves what was thought before the call, where the provider puts that here.
    pub signature: Option<String>,
}

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
    /// At least one.
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
    /// Such as `low` or `high`.
    pub effort: Option<String>,
    pub budget_tokens: Option<u64>,
    /// Whether a summary of it is wanted.
    pub summary: Option<String>,
}

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

/// Why an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    Stop,
    /// One of the sequences that the request names.
    StopSequence(String),
    Length,
    ToolCalls,
    Filtered,
    Refused,
    /// The provider wants to be asked to go on.
    Paused,
    /// Another word of the provider's.
    Other(String),
}

/// What a stream adds to an answer. `choice` counts answers, `part` the parts of one of them.
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
    /// Proves the reasoning before it, or is all there is of it.
    ReasoningProof {
        choice: u32,
        signature: Option<String>,
        sealed: Option<String>,
    },
    /// `part` counts the calls of this answer.
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
    /// All that was used up to now.
    Usage(TokenUsage),
    /// Keeps the connection alive.
    Ping,
    Fault(Fault),
    End,
}

/// An error as providers tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    pub status: u16,
    /// The provider's word for it, such as `invalid_request_error`.
    pub kind: Option<String>,
    pub code: Option<String>,
    pub parameter: Option<String>,
    pub message: String,
}
