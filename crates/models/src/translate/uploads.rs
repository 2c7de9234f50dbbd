//! Refuses references to uploaded files, which only the provider they were uploaded to has.

use crate::chat::{Chat, Content, Source};
use crate::dialect::members::At;
use crate::dialect::{Dialect, Unsayable};

pub(super) fn refuse(chat: &Chat, from: Dialect, to: Dialect) -> Result<(), Unsayable> {
    use Dialect::{OpenAi, Responses};
    if from == to || matches!((from, to), (OpenAi, Responses) | (Responses, OpenAi)) {
        return Ok(());
    }
    let messages_at = At::BODY.name("messages");
    for (index, message) in chat.messages.iter().enumerate() {
        if message.parts.iter().any(|part| is_uploaded(&part.content)) {
            let why = "only the provider that a file was uploaded to has it: send its content";
            return Err(messages_at.index(index).wrong(why));
        }
    }
    Ok(())
}

fn is_uploaded(content: &Content) -> bool {
    match content {
        Content::Image { source, .. }
        | Content::File { source, .. }
        | Content::Audio { source } => {
            matches!(source, Source::Id(_))
        }
        Content::ToolResult { content, .. } => content.iter().any(is_uploaded),
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::Refusal(_)
        | Content::ToolCall(_) => false,
    }
}
