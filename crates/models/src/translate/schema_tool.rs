//! Makes a model keep to a schema for its answer if it only knows schemas for tools: it must call a
//! tool with that schema, and the arguments of the call become the answer.

use crate::chat::{Answer, Chat, Content, Delta, Finish, Format, Others, Tool, ToolChoice};
use crate::dialect::Unsayable;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct SchemaTool {
    name: String,
    /// The calls of this tool within a stream.
    calls: BTreeSet<(u32, u32)>,
}

impl SchemaTool {
    pub(super) fn put(chat: &mut Chat) -> Result<Self, Unsayable> {
        if !chat.tools.is_empty() {
            let why = "this model can be held to a schema, or be given tools, but not both";
            return Err(Unsayable::new("response_format", why));
        }
        let Some(Format::Schema { name, description, schema, .. }) = chat.format.take() else {
            return Err(Unsayable::new("response_format", "has no schema"));
        };
        let description = description.unwrap_or_else(|| "The answer, in this form.".to_owned());
        chat.tools.push(Tool {
            name: name.clone(),
            description: Some(description),
            parameters: Some(schema),
            strict: None,
            others: Others::new(),
        });
        chat.tool_choice = Some(ToolChoice::Named(name.clone()));
        chat.parallel_tools = Some(false);
        Ok(Self { name, calls: BTreeSet::new() })
    }

    pub(super) fn take(&self, answer: &mut Answer) {
        for choice in &mut answer.choices {
            for part in &mut choice.parts {
                if let Content::ToolCall(call) = &mut part.content
                    && call.name == self.name
                {
                    part.content = Content::Text(std::mem::take(&mut call.arguments));
                }
            }
            finish(&mut choice.finish);
        }
    }

    /// Turns a call of the tool into text. Returns false if the delta has to be left out.
    pub(super) fn stream(&mut self, delta: &mut Delta) -> bool {
        match delta {
            Delta::ToolBegin { choice, part, name, .. } if *name == self.name => {
                self.calls.insert((*choice, *part));
                false
            }
            Delta::ToolArguments { choice, part, text }
                if self.calls.contains(&(*choice, *part)) =>
            {
                *delta = Delta::Text { choice: *choice, text: std::mem::take(text) };
                true
            }
            Delta::Finish { finish: found, .. } => {
                finish(found);
                true
            }
            _ => true,
        }
    }
}

fn finish(finish: &mut Finish) {
    if *finish == Finish::ToolCalls {
        *finish = Finish::Stop;
    }
}
