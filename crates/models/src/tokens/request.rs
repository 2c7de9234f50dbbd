//! Counts the tokens of a request's input: an estimate, and an upper bound.

use super::keys::Key;
use super::sample::Sample;
use super::scan::{Scan, Sink, Take};
use super::{COUNTED_MAX, count};

/// Estimate for an image.
const IMAGE_TOKENS: u64 = 1000;
/// Tokens that each message has around its text.
const MESSAGE_TOKENS: u64 = 3;

/// Upper bound for an image, with any provider.
pub const IMAGE_TOKENS_MAX: u64 = 50_000;
/// Upper bound for what providers add to a request, such as instructions for tools and marks of
/// messages.
const ADDED_TOKENS_MAX: u64 = 2048;

/// Estimates how many tokens a request's input has for a model. An image counts a thousand,
/// wherever it is. May block for some milliseconds.
pub fn input_estimate(model: &str, body: &[u8]) -> u64 {
    let mut texts = Texts { sample: Sample::new(COUNTED_MAX), more: 0 };
    Scan::new().push(body, &mut texts);
    count(model, &texts.sample).saturating_add(texts.more)
}

/// Returns an upper bound for the tokens of a request's input. Reservations rest on it.
///
/// In the vocabulary of every provider that publishes one, a token has at least one byte, so a body
/// of text has no more tokens than bytes. Each image adds [`IMAGE_TOKENS_MAX`], and
/// [`ADDED_TOKENS_MAX`] is added for what providers put around the input. The result is `u64::MAX`
/// if the body refers to anything that is not in it: files, audio, documents, earlier answers,
/// tools that run at the provider, and every member that is not known here. Then the model's
/// context, from the list of prices, is the bound.
pub fn input_bound(body: &[u8]) -> u64 {
    let mut bound = Bound { images: 0, is_open: false, item: Item::default() };
    let mut scan = Scan::new();
    scan.push(body, &mut bound);
    bound.next_item();
    // Anything that could not be followed to its end may refer to anything.
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
            // Input that the caller already turned into tokens.
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

    /// Counts the names in the schemas of tools, which the model reads too.
    fn key(&mut self, path: &[Key], name: &[u8]) {
        if let [Key::Tools | Key::Functions | Key::ResponseFormat, _, ..] = path {
            self.sample.push(name);
            self.sample.push(b" ");
        }
    }
}

/// Returns whether the model reads what is below this member.
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

/// Looks for what a body refers to.
struct Bound {
    images: u64,
    is_open: bool,
    item: Item,
}

/// What is known of an item of `input`. An item with only an id stands for what the provider keeps,
/// and so does a thought without its text.
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
        // A member that is null refers to nothing.
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
            // An object refers to a prompt that the provider keeps.
            [Key::Prompt] if first == b'{' => self.is_open = true,
            // Tools may only have the members of functions. Others run at the provider.
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
                // Its media type says what it is.
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

/// Returns whether a member of a message contains everything it refers to.
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

/// Returns whether a member of a tool can belong to a function, in any dialect.
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

/// Returns whether a top-level member gives the model nothing to read, or nothing beyond what it
/// contains.
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
