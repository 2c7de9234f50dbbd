//! Reads from an answer how many tokens it used.

use super::count;
use super::keys::Key;
use super::sample::Sample;
use super::scan::{Scan, Sink, Take};
use crate::chat::Passed;
use crate::dialect::Dialect;
use crate::operation::Operation;
use types::models::TokenUsage;

/// How many bytes of an answer's text are kept for an estimate.
const TEXT_MAX: usize = 16 << 10;
/// Cap for every number that is read. No call uses more, and sums must not overflow.
pub const TOKENS_MAX: u64 = 1 << 40;

/// Follows one answer as it passes.
#[derive(Debug)]
pub struct UsageReader {
    framing: Framing,
    scan: Scan,
    notes: Notes,
}

/// How the JSON documents of an answer are delimited.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Unknown,
    /// Not at all: the body is one document, or a list of them.
    Body,
    Events(Line),
}

#[derive(Debug, Clone, Copy)]
enum Line {
    /// At the start of a line, after this many bytes of `data:`.
    Begins(usize),
    /// In the data of an event, after this many bytes of `[DONE]`.
    Data(usize),
    Other,
}

const FIELD: &[u8] = b"data:";
const DONE: &[u8] = b"[DONE]";

/// What an answer used, as far as it was seen.
#[derive(Debug)]
pub struct Seen {
    /// What the provider reports for the whole answer. `None` if it does not, or if the answer was
    /// cut off.
    pub usage: Option<TokenUsage>,
    /// What the provider has reported so far, also if the answer was cut off. Zero without a
    /// report.
    pub partial: TokenUsage,
    /// Whether the answer came to its own end.
    pub finished: bool,
    /// The provider's name for the model.
    pub model: Option<String>,
    text: Sample,
}

impl UsageReader {
    /// Creates a reader. `dialect` is the one that the provider answers in. With `is_stream`, the
    /// first bytes decide whether the answer consists of events.
    pub fn new(dialect: Dialect, operation: Operation, is_stream: bool) -> Self {
        let is_embedding = matches!(operation, Operation::Embeddings(_));
        let framing = if is_stream { Framing::Unknown } else { Framing::Body };
        Self { framing, scan: Scan::new(), notes: Notes::new(dialect, is_embedding) }
    }

    /// Takes the next part of the answer's body, without any content encoding.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Framing::Unknown = self.framing {
            let is_space =
                |byte: &&u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let Some(first) = bytes.iter().find(|byte| !is_space(byte)) else { return };
            let is_body = matches!(first, b'{' | b'[');
            self.framing = if is_body { Framing::Body } else { Framing::Events(Line::Begins(0)) };
            self.notes.is_events = !is_body;
        }
        match self.framing {
            Framing::Events(line) => self.framing = Framing::Events(self.events(bytes, line)),
            _ => self.scan.push(bytes, &mut self.notes),
        }
    }

    fn events(&mut self, mut bytes: &[u8], mut line: Line) -> Line {
        while let [first, rest @ ..] = bytes {
            match line {
                Line::Begins(0) if *first == b'\n' => {
                    // An event ends, and with it any document that was cut off in it.
                    self.scan.reset();
                    bytes = rest;
                }
                Line::Begins(0) if matches!(first, b'\r' | 0xef | 0xbb | 0xbf) => bytes = rest,
                Line::Begins(at) if *first == FIELD[at] => {
                    line = if at + 1 == FIELD.len() { Line::Data(0) } else { Line::Begins(at + 1) };
                    bytes = rest;
                }
                Line::Begins(_) => line = Line::Other,
                Line::Data(_) | Line::Other => {
                    let end = memchr::memchr(b'\n', bytes);
                    let (now, later) = bytes.split_at(end.unwrap_or(bytes.len()));
                    if let Line::Data(done) = line {
                        line = Line::Data(self.data(now, done));
                    }
                    bytes = later.get(1..).unwrap_or_default();
                    if end.is_some() {
                        line = Line::Begins(0);
                    }
                }
            }
        }
        line
    }

    fn data(&mut self, piece: &[u8], mut done: usize) -> usize {
        for byte in piece {
            match DONE.get(done) {
                Some(wanted) if wanted == byte => done += 1,
                Some(_) if done == 0 && *byte == b' ' => {}
                _ => {
                    if done < DONE.len() {
                        done = usize::MAX;
                    }
                    break;
                }
            }
        }
        if done == DONE.len() {
            self.notes.is_finished = true;
        }
        self.scan.push(piece, &mut self.notes);
        done
    }

    /// Returns whether the stream has said that it ends.
    pub const fn is_finished(&self) -> bool {
        self.notes.is_finished
    }

    /// Returns whether the answer has said why it ends, be it by an error.
    pub const fn says_its_end(&self) -> bool {
        self.notes.is_ended || self.notes.is_finished || self.notes.has_failed
    }

    /// Returns what an error refers to that ends the stream here.
    pub fn passed(&self) -> Passed {
        let notes = &self.notes;
        // They stay empty in a stream that did not begin.
        let id = notes.id.clone().unwrap_or_default();
        let model = notes.model.clone().unwrap_or_default();
        Passed { id, model, created: 0, next_event: notes.next_event }
    }

    /// Returns whether the answer has ended and only the usage is still to come.
    pub const fn awaits_usage(&self) -> bool {
        self.notes.is_ended && !self.notes.is_complete
    }

    /// Ends the answer and returns what was seen of it.
    pub fn finish(self) -> Seen {
        let notes = self.notes;
        let is_whole = match (notes.is_events, self.scan.is_list) {
            (true, _) => notes.is_finished,
            (false, true) => self.scan.is_list_closed,
            (false, false) => self.scan.documents > 0 && !self.scan.is_open(),
        };
        let partial = notes.usage();
        let is_complete = match notes.is_events || self.scan.is_list {
            true => notes.is_complete,
            false => is_whole && notes.has_usage,
        };
        Seen {
            usage: is_complete.then_some(partial),
            partial,
            finished: is_whole,
            model: notes.model,
            text: notes.text,
        }
    }
}

impl Seen {
    /// Returns how many bytes of text were seen in the answer.
    pub fn text_bytes(&self) -> u64 {
        self.text.bytes()
    }

    /// Returns what was used: the provider's numbers, and where they are missing, an estimate.
    /// `input` is only called if the number of input tokens is missing too. An estimate may block
    /// for some milliseconds.
    pub fn settle(&self, model: &str, input: impl FnOnce() -> u64) -> TokenUsage {
        if let Some(usage) = self.usage {
            return usage;
        }
        let said = self.partial;
        TokenUsage {
            input: if said.input > 0 { said.input } else { input() },
            output: said.output.max(count(model, &self.text)),
            estimated: true,
            ..said
        }
    }
}

/// What was noted about an answer.
#[derive(Debug)]
struct Notes {
    dialect: Dialect,
    is_embedding: bool,
    is_events: bool,
    counts: Counts,
    has_usage: bool,
    /// The document that is being read.
    document: Document,
    /// Whether the answer has said why it ends.
    is_ended: bool,
    is_finished: bool,
    /// Whether the provider reported an error in place of the rest.
    has_failed: bool,
    /// Whether the usage noted so far is for the whole answer.
    is_complete: bool,
    id: Option<String>,
    model: Option<String>,
    /// The number of the next event, in a dialect that numbers them.
    next_event: u64,
    text: Sample,
}

#[derive(Debug, Default)]
struct Document {
    has_usage: bool,
    has_final_usage: bool,
    has_text: bool,
}

/// Numbers as the provider reports them. Of several the highest counts, because providers that
/// report within a stream report running totals.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    billed_input: u64,
    tool_input: u64,
    output: u64,
    billed_output: u64,
    total: u64,
    cached: u64,
    written: u64,
    written_hour: u64,
    reasoning: u64,
}

impl Notes {
    fn new(dialect: Dialect, is_embedding: bool) -> Self {
        Self {
            dialect,
            is_embedding,
            is_events: false,
            counts: Counts::default(),
            has_usage: false,
            document: Document::default(),
            is_ended: false,
            is_finished: false,
            has_failed: false,
            is_complete: false,
            id: None,
            model: None,
            next_event: 0,
            text: Sample::new(TEXT_MAX),
        }
    }

    fn usage(&self) -> TokenUsage {
        let counts = &self.counts;
        let (input, output) = match self.dialect {
            Dialect::Anthropic => (counts.input + counts.cached + counts.written, counts.output),
            Dialect::Cohere => {
                let or = |billed: u64, said: u64| if billed > 0 { billed } else { said };
                (or(counts.billed_input, counts.input), or(counts.billed_output, counts.output))
            }
            Dialect::Gemini => {
                let input = counts.input + counts.tool_input;
                let output = counts.output + counts.reasoning;
                (input, output.max(counts.total.saturating_sub(input)))
            }
            // Some providers do not count reasoning as output, but do in the total.
            Dialect::OpenAi | Dialect::Responses => {
                (counts.input, counts.output.max(counts.total.saturating_sub(counts.input)))
            }
        };
        let cached = counts.cached.min(input);
        let cache_written = counts.written.min(input - cached);
        TokenUsage {
            input,
            output: if self.is_embedding { 0 } else { output },
            cached,
            cache_written,
            cache_written_hour: counts.written_hour.min(cache_written),
            reasoning: counts.reasoning.min(output),
            estimated: false,
        }
    }

    /// Returns the rest of the path if it leads to usage, and whether that is for the whole answer.
    fn usage_path<'p>(&self, path: &'p [Key]) -> Option<(&'p [Key], bool)> {
        match (self.dialect, path) {
            (Dialect::Anthropic, [Key::Message, Key::Usage, rest @ ..]) => Some((rest, false)),
            (Dialect::OpenAi, [Key::XGroq, Key::Usage, rest @ ..])
            | (Dialect::Responses, [Key::Response, Key::Usage, rest @ ..])
            | (Dialect::Cohere, [Key::Delta, Key::Usage, rest @ ..] | [Key::Meta, rest @ ..])
            | (Dialect::Gemini, [Key::UsageMetadata, rest @ ..]) => Some((rest, true)),
            (Dialect::Gemini, _) => None,
            (_, [Key::Usage, rest @ ..]) => Some((rest, true)),
            _ => None,
        }
    }

    fn take(&mut self, path: &[Key], number: u64) -> bool {
        let counts = &mut self.counts;
        let place = match path {
            [Key::PromptTokens | Key::InputTokens | Key::PromptTokenCount]
            | [Key::Tokens, Key::InputTokens] => &mut counts.input,
            [Key::CompletionTokens | Key::OutputTokens | Key::CandidatesTokenCount]
            | [Key::Tokens, Key::OutputTokens] => &mut counts.output,
            [Key::BilledUnits, Key::InputTokens] => &mut counts.billed_input,
            [Key::BilledUnits, Key::OutputTokens] => &mut counts.billed_output,
            [Key::ToolUsePromptTokenCount] => &mut counts.tool_input,
            [Key::TotalTokens | Key::TotalTokenCount] => &mut counts.total,
            [Key::PromptTokensDetails | Key::InputTokensDetails, Key::CachedTokens]
            | [
                Key::PromptCacheHitTokens
                | Key::CachedContentTokenCount
                | Key::CacheReadInputTokens
                | Key::CachedTokens,
            ] => &mut counts.cached,
            [Key::CacheCreationInputTokens]
            | [Key::PromptTokensDetails | Key::InputTokensDetails, Key::CacheWriteTokens] => {
                &mut counts.written
            }
            [Key::CacheCreation, Key::EphemeralHour] => &mut counts.written_hour,
            [
                Key::CompletionTokensDetails | Key::OutputTokensDetails,
                Key::ReasoningTokens | Key::ThinkingTokens,
            ]
            | [Key::ThoughtsTokenCount | Key::ReasoningTokens] => &mut counts.reasoning,
            _ => return false,
        };
        *place = (*place).max(number.min(TOKENS_MAX));
        true
    }

    /// Returns whether the model wrote the text at this path.
    fn is_text(&self, path: &[Key]) -> bool {
        let Some(last) = path.last() else { return false };
        let is_known = path.iter().all(|key| *key != Key::Other);
        let is_told = is_known
            && matches!(
                last,
                Key::Content
                    | Key::Text
                    | Key::Reasoning
                    | Key::ReasoningContent
                    | Key::Refusal
                    | Key::Arguments
                    | Key::Name
                    | Key::Thinking
                    | Key::Transcript
                    | Key::ToolPlan
            );
        match (self.dialect, path) {
            (Dialect::OpenAi, [Key::Choices, Key::Text]) => true,
            (Dialect::OpenAi, [Key::Choices, Key::Delta | Key::Message, ..]) => is_told,
            // The end of a stream repeats everything that was streamed.
            (Dialect::Responses, [Key::Delta]) => self.is_events,
            (Dialect::Responses, [Key::Output, ..]) => !self.is_events && is_told,
            (Dialect::Anthropic, [Key::Delta, Key::Text | Key::Thinking | Key::PartialJson])
            | (Dialect::Anthropic, [Key::ContentBlock, Key::Text | Key::Thinking | Key::Name])
            | (Dialect::Anthropic, [Key::Content, Key::Text | Key::Thinking | Key::Name])
            | (Dialect::Anthropic, [Key::Content, Key::Input, ..])
            | (Dialect::Gemini, [Key::Candidates, Key::Content, Key::Parts, Key::Text])
            | (
                Dialect::Gemini,
                [Key::Candidates, Key::Content, Key::Parts, Key::FunctionCall, ..],
            ) => true,
            (Dialect::Cohere, [Key::Delta, Key::Message, ..] | [Key::Message, ..]) => is_told,
            _ => false,
        }
    }

    /// Returns whether a word of the provider's says that the answer ends. If the type of a
    /// document says it, the usage comes in that document or before.
    fn ends(&self, path: &[Key], word: &str) -> bool {
        match (self.dialect, path) {
            (Dialect::OpenAi, [Key::Choices, Key::FinishReason])
            | (Dialect::Gemini, [Key::Candidates, Key::FinishReasonCamel])
            | (Dialect::Gemini, [Key::PromptFeedback, Key::BlockReason]) => !word.is_empty(),
            (Dialect::Responses, [Key::Type]) => {
                matches!(word, "response.completed" | "response.incomplete" | "response.failed")
            }
            (Dialect::Anthropic, [Key::Type]) => word == "message_stop",
            (Dialect::Cohere, [Key::Type]) => word == "message-end",
            _ => false,
        }
    }
}

impl Sink for Notes {
    fn value(&mut self, path: &[Key], first: u8) -> Take {
        self.has_failed |= matches!(path, [Key::Error]) && first != b'n';
        if first != b'"' {
            return Take::Skip;
        }
        match path {
            [Key::Model | Key::ModelVersion] | [Key::Response | Key::Message, Key::Model]
                if self.model.is_none() =>
            {
                Take::Word
            }
            [Key::Response, Key::Id] if self.id.is_none() => Take::Word,
            [Key::Type]
            | [Key::Choices, Key::FinishReason]
            | [Key::Candidates, Key::FinishReasonCamel]
            | [Key::PromptFeedback, Key::BlockReason] => Take::Word,
            _ if self.is_text(path) => Take::Text,
            _ => Take::Skip,
        }
    }

    fn text(&mut self, piece: &[u8]) {
        self.document.has_text |= !piece.is_empty();
        self.text.push(piece);
    }

    fn word(&mut self, path: &[Key], word: &str) {
        if let Some(Key::Model | Key::ModelVersion) = path.last() {
            self.model = Some(word.to_owned()).filter(|word| !word.is_empty());
        } else if let [Key::Response, Key::Id] = path {
            self.id = Some(word.to_owned());
        } else if let ([Key::Type], "error") = (path, word) {
            self.has_failed = true;
        } else if self.ends(path, word) {
            self.is_ended = true;
            // OpenAI's streams have another mark after that.
            self.is_finished |= self.dialect != Dialect::OpenAi;
        }
    }

    fn number(&mut self, path: &[Key], number: u64) {
        if let [Key::SequenceNumber] = path {
            self.next_event = number.saturating_add(1);
        }
        let Some((rest, is_final)) = self.usage_path(path) else { return };
        if self.take(rest, number) {
            self.has_usage = true;
            self.document.has_usage = true;
            self.document.has_final_usage |= is_final;
        }
    }

    fn end(&mut self) {
        let document = std::mem::take(&mut self.document);
        // Numbers that were followed by more text cover only the text before them.
        self.is_complete &= !document.has_text;
        self.is_complete |= match self.dialect {
            Dialect::OpenAi | Dialect::Gemini => document.has_usage && self.is_ended,
            _ => document.has_final_usage,
        };
    }
}
