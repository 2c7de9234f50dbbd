//! How the stand-in behaves, as told by words that are separated by `,` or `+`.

use std::time::Duration;

/// Without any word it answers at once, with 8 tokens, and reports usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Behaviour {
    /// `status=429`: fails, in the form of the dialect.
    pub(crate) status: Option<u16>,
    /// `code=context_length_exceeded`: the error code that a failure gives.
    pub(crate) code: Option<String>,
    /// `retry-after=2`: seconds, in a header.
    pub(crate) retry_after: Option<u64>,
    /// `failing=2`: the first calls of a model fail, as `status` says; later ones are answered.
    pub(crate) failing: Option<u64>,
    /// `first=200`: milliseconds until the head of the answer; with `head`, until the first token.
    pub(crate) first: Duration,
    pub(crate) head: bool,
    /// `gap=50`: milliseconds between tokens.
    pub(crate) gap: Duration,
    /// `out=20`: tokens of the answer.
    pub(crate) out: Option<usize>,
    /// `reasoning=5`: reasoning tokens before the answer.
    pub(crate) reasoning: usize,
    /// `cached=7`: input tokens that were in a cache.
    pub(crate) cached: u64,
    /// `cut=3`: breaks off after this many pieces of a stream, by closing the connection.
    pub(crate) cut: Option<usize>,
    /// With `cut`: ends the response normally, but in the middle of an event.
    pub(crate) half: bool,
    /// With `cut`: reports a failure, as an event.
    pub(crate) fault: bool,
    pub(crate) endless: bool,
    pub(crate) no_usage: bool,
    /// `usage`: reports usage at the end of a stream even to callers who did not ask, as Mistral
    /// does.
    pub(crate) usage: bool,
    /// `gzip`: compresses, whatever was asked for.
    pub(crate) gzip: bool,
    /// `malformed`: answers 200 with something that is not JSON.
    pub(crate) malformed: bool,
    /// `redirect`: redirects to an internal address.
    pub(crate) redirect: bool,
    /// `huge=1000000`: bytes of one token.
    pub(crate) huge: usize,
    /// `hang`: never answers.
    pub(crate) hang: bool,
    /// `drop`: closes the connection instead of answering.
    pub(crate) drop: bool,
    /// `text`: calls no tool, though it could.
    pub(crate) text: bool,
    /// `tools=2`: makes this many tool calls at once.
    pub(crate) tools: Option<usize>,
    /// `ping`: a ping before each token, if the dialect has pings.
    pub(crate) ping: bool,
}

impl Behaviour {
    pub(crate) fn add(&mut self, words: &str) {
        for word in words.split([',', '+']).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = value.parse::<u64>().unwrap_or(1);
            match name {
                "status" => self.status = u16::try_from(number).ok(),
                "code" => self.code = Some(value.to_owned()),
                "retry-after" => self.retry_after = Some(number),
                "failing" => self.failing = Some(number),
                "first" => self.first = Duration::from_millis(number),
                "head" => self.head = true,
                "gap" => self.gap = Duration::from_millis(number),
                "out" => self.out = usize::try_from(number).ok(),
                "reasoning" => self.reasoning = count(number),
                "cached" => self.cached = number,
                "cut" => self.cut = Some(count(number)),
                "half" => self.half = true,
                "fault" => self.fault = true,
                "endless" => self.endless = true,
                "no-usage" => self.no_usage = true,
                "usage" => self.usage = true,
                "gzip" => self.gzip = true,
                "malformed" => self.malformed = true,
                "redirect" => self.redirect = true,
                "huge" => self.huge = count(number),
                "hang" => self.hang = true,
                "drop" => self.drop = true,
                "text" => self.text = true,
                "tools" => self.tools = Some(count(number)),
                "ping" => self.ping = true,
                _ => {}
            }
        }
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
