//! What a request's input counts: about, and at most.

use super::keys::Key;
use super::sample::Sample;
use super::scan::{Scan, Sink, Take};
use super::{COUNTED_MAX, count};

/// What an image counts in an estimate.
const IMAGE_TOKENS: u64 = 1000;
/// What each message has around its text.
const MESSAGE_TOKENS: u64 = 3;

/// Tokens that no provider makes more of one image than.
pub const IMAGE_TOKENS_MAX: u64 = 50_000;
/// What providers add to a request: instructions for tools, marks of messages.
const ADDED_TOKENS_MAX: u64 = 2048;

/// How many tokens a request's input has for a model, about. An image counts a thousand, wherever it is.
/// May block for some milliseconds.
pub fn input_estimate(model: &str, body: &[u8]) -> u64 {
    let mut texts = Texts { sample: Sample::new(COUNTED_MAX), more: 0 };
    Scan::new().push(body, &mut texts);
    count(model, &texts.sample).saturating_add(texts.more)
}

/// More tokens than a request's input can have, for reservations.
///
/// A token has a byte at least, in the vocabulary of every provider that publishes one, so a body of text
/// has no more of them than bytes; each image adds [`IMAGE_TOKENS_MAX`], and [`ADDED_TOKENS_MAX`] is added
/// for what providers put around it. `u64::MAX` where the body leads to what it does not hold: files,
/// audio, documents, answers from before, tools that run at the provider, and every member that is not
/// known here. Then the model's context, which is in the list of prices, is the bound.
pub fn input_bound(body: &[u8]) -> u64 {
    let mut bound = Bound { images: 0, is_open: false, item: Item::default() };
    let mut scan = Scan::new();
    scan.push(body, &mut bound);
    bound.next_item();
    // What could not be followed to its end may hold anything.
    if bound.is_open || scan.is_open() || scan.documents != 1 {
        return u64::MAX;
    }
    let images = bound.images.saturating_mul(IMAGE_TOKENS_MAX);
    (body.len() as u64).saturating_add(images).saturating_add(ADDED_TOKENS_MAX)
}

/// Collects what a model reads.
struct Texts {
    sample: Sample,
    more: u64,
}

impl Sink for Texts {
    fn value(&mut self, path: &[Key], first: u8) -> Take {
        let Some((root, last)) = path.first().zip(path.last()) else { return Take::Skip };
        if !is_read(*root) {
            return Take::Skip;
        }
        match (first, last) {
            (b'"', Key::Url | Key::ImageUrl | Key::Data) => {
                self.more = self.more.saturating_add(IMAGE_TOKENS);
                Take::Skip
            }
            (b'"', Key::Role) => {
                self.more = self.more.saturating_add(MESSAGE_TOKENS);
                Take::Text
            }
            (
                b'"',
                Key::Type
                | Key::Id
                | Key::Model
                | Key::Signature
                | Key::ThoughtSignature
                | Key::ThoughtSignatureSnake
                | Key::MimeType
                | Key::MimeTypeSnake
                | Key::Cache,
            ) => Take::Skip,
            (b'"', _) => Take::Text,
            // Tokens that the caller made.
            (b'0'..=b'9', Key::Input) => {
                self.more = self.more.saturating_add(1);
                Take::Skip
            }
            _ => Take::Skip,
        }
    }

    fn text(&mut self, piece: &[u8]) {
        self.sample.push(piece);
    }

    /// Schemas of tools are read with their names.
    fn key(&mut self, path: &[Key], name: &[u8]) {
        if let [Key::Tools | Key::Functions | Key::ResponseFormat, _, ..] = path {
            self.sample.push(name);
            self.sample.push(b" ");
        }
    }
}

/// Whether what is below this member goes to the model.
fn is_read(root: Key) -> bool {
    matches!(
        root,
        Key::Messages
            | Key::Input
            | Key::Inputs
            | Key::Contents
            | Key::Content
            | Key::System
            | Key::SystemInstruction
            | Key::SystemInstructionSnake
            | Key::Instructions
            | Key::Tools
            | Key::Functions
            | Key::Prompt
            | Key::Texts
            | Key::Requests
            | Key::Documents
            | Key::ResponseFormat
            | Key::Text
    )
}

/// Looks for what a body leads to.
struct Bound {
    images: u64,
    is_open: bool,
    item: Item,
}

/// What is known of an item of `input`. One that has an id alone stands for what the provider keeps, and
/// a thought without its text does too.
#[derive(Default)]
struct Item {
    has_id: bool,
    is_whole: bool,
}

impl Bound {
    fn next_item(&mut self) {
        let Item { has_id, is_whole } = std::mem::take(&mut self.item);
        self.is_open |= has_id && !is_whole;
    }

    fn member_of_item(&mut self, member: Key) {
        match member {
            Key::Id => self.item.has_id = true,
            Key::Content | Key::Arguments | Key::Input | Key::Output | Key::EncryptedContent => {
                self.item.is_whole = true;
            }
            _ => {}
        }
    }

    fn image(&mut self) {
        self.images = self.images.saturating_add(1);
    }
}

impl Sink for Bound {
    fn value(&mut self, path: &[Key], first: u8) -> Take {
        // What is not set leads to nothing.
        if first == b'n' {
            return Take::Skip;
        }
        match path {
            [Key::Input] if first == b'{' => self.next_item(),
            [Key::Input, member] => self.member_of_item(*member),
            _ => {}
        }
        match path {
            [root] if !is_read(*root) && !is_setting(*root) => self.is_open = true,
            // An object there is a prompt that the provider keeps.
            [Key::Prompt] if first == b'{' => self.is_open = true,
            // Of a tool: what a function has. Others run at the provider.
            [Key::Tools, member] if !is_of_function(*member) => self.is_open = true,
            [Key::Messages, member] if !is_of_message(*member) => self.is_open = true,
            [Key::Messages | Key::Input | Key::System | Key::Content, Key::Content, Key::Type]
            | [Key::Messages | Key::Input, Key::Content, Key::Content, Key::Type]
            | [Key::Input, Key::Output, Key::Type]
            | [Key::Messages | Key::Input | Key::System | Key::Tools | Key::Inputs, Key::Type]
            | [Key::Inputs, Key::Content, Key::Type] => return Take::Word,
            [
                Key::Contents | Key::SystemInstruction | Key::SystemInstructionSnake | Key::Content,
                Key::Parts,
                member,
            ]
            | [Key::Requests, Key::Content, Key::Parts, member] => match member {
                Key::Text
                | Key::FunctionCall
                | Key::FunctionCallSnake
                | Key::FunctionResponse
                | Key::FunctionResponseSnake
                | Key::Thought
                | Key::ThoughtSignature
                | Key::ThoughtSignatureSnake
                // Its type says what it is.
                | Key::InlineData
                | Key::InlineDataSnake => {}
                _ => self.is_open = true,
            },
            [.., Key::InlineData | Key::InlineDataSnake, Key::MimeType | Key::MimeTypeSnake] => {
                return Take::Word;
            }
            _ => {}
        }
        Take::Skip
    }

    fn text(&mut self, _: &[u8]) {}

    fn word(&mut self, path: &[Key], word: &str) {
        if let Some(Key::MimeType | Key::MimeTypeSnake) = path.last() {
            match word.starts_with("image/") {
                true => self.image(),
                false => self.is_open = true,
            }
            return;
        }
        match word {
            "text"
            | "input_text"
            | "output_text"
            | "tool_use"
            | "tool_result"
            | "thinking"
            | "redacted_thinking"
            | "refusal"
            | "function"
            | "custom"
            | "message"
            | "function_call"
            | "function_call_output"
            | "custom_tool_call"
            | "custom_tool_call_output"
            | "reasoning"
            | "summary_text"
            | "reasoning_text" => {}
            "image_url" | "input_image" | "image" => self.image(),
            _ => self.is_open = true,
        }
    }
}

/// Members of a message that hold all they mean.
fn is_of_message(member: Key) -> bool {
    matches!(
        member,
        Key::Role
            | Key::Content
            | Key::Name
            | Key::ToolCalls
            | Key::ToolCallId
            | Key::ToolPlan
            | Key::FunctionCallSnake
            | Key::Refusal
            | Key::Reasoning
            | Key::ReasoningContent
            | Key::Annotations
            | Key::Citations
            | Key::Prefix
    )
}

/// Members of a function among the tools, in any dialect.
fn is_of_function(member: Key) -> bool {
    matches!(
        member,
        Key::Type
            | Key::Function
            | Key::Name
            | Key::Description
            | Key::Parameters
            | Key::InputSchema
            | Key::Strict
            | Key::Cache
            | Key::FunctionDeclarations
            | Key::FunctionDeclarationsSnake
    )
}

/// Members at the top of a request that give the model nothing to read, or only what they hold.
fn is_setting(root: Key) -> bool {
    matches!(
        root,
        Key::Model
            | Key::FrequencyPenalty
            | Key::GenerationConfig
            | Key::GenerationConfigSnake
            | Key::Include
            | Key::K
            | Key::Logprobs
            | Key::LogitBias
            | Key::MaxCompletionTokens
            | Key::MaxOutputTokens
            | Key::MaxTokens
            | Key::MaxToolCalls
            | Key::Metadata
            | Key::Modalities
            | Key::N
            | Key::P
            | Key::ParallelToolCalls
            | Key::PresencePenalty
            | Key::PromptCache
            | Key::PromptCacheRetention
            | Key::Reasoning
            | Key::ReasoningEffort
            | Key::ReasoningFormat
            | Key::SafetyIdentifier
            | Key::SafetyMode
            | Key::SafetyPrompt
            | Key::SafetySettings
            | Key::Seed
            | Key::ServiceTier
            | Key::Stop
            | Key::StopSequences
            | Key::Store
            | Key::Stream
            | Key::StreamOptions
            | Key::Temperature
            | Key::Thinking
            | Key::ToolChoice
            | Key::ToolConfig
            | Key::ToolConfigSnake
            | Key::TopK
            | Key::TopLogprobs
            | Key::TopP
            | Key::Truncation
            | Key::User
            | Key::Verbosity
            | Key::EncodingFormat
            | Key::Dimensions
            | Key::InputType
            | Key::EmbeddingTypes
            | Key::TaskType
            | Key::Title
            | Key::OutputDimensionality
            | Key::RandomSeed
            | Key::FunctionCallSnake
    )
}
