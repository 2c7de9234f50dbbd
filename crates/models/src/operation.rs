//! What a path below a model asks for.

use crate::dialect::Dialect;

/// What a request is for, decided once from the path as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An answer to messages, in this dialect.
    Chat(Dialect),
    /// A chat in Gemini's dialect whose answer is streamed: Gemini says so in the path.
    GeminiStream,
    Embeddings(Dialect),
    /// The list of available models.
    Models,
    /// Anything else, such as counting tokens, files or batches: passed on as it is, but for the
    /// model whose tokens are counted.
    Other,
}

impl Operation {
    /// Reads `path`, which is what follows the name of the model, without a query. The published
    /// clients leave out the version, or put another provider's version in front.
    pub fn of(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        if let Some((_, verb)) = path.rsplit_once(':') {
            return match verb {
                "generateContent" => Self::Chat(Dialect::Gemini),
                "streamGenerateContent" => Self::GeminiStream,
                "embedContent" | "batchEmbedContents" => Self::Embeddings(Dialect::Gemini),
                _ => Self::Other,
            };
        }
        match path {
            // No path at all is the default of the published command line.
            ""
            | "/chat/completions"
            | "/v1/chat/completions"
            | "/compatibility/v1/chat/completions"
            | "/v1beta/openai/chat/completions" => Self::Chat(Dialect::OpenAi),
            "/responses" | "/v1/responses" => Self::Chat(Dialect::Responses),
            "/messages" | "/v1/messages" => Self::Chat(Dialect::Anthropic),
            "/v2/chat" => Self::Chat(Dialect::Cohere),
            "/embeddings" | "/v1/embeddings" | "/compatibility/v1/embeddings" => {
                Self::Embeddings(Dialect::OpenAi)
            }
            "/v2/embed" => Self::Embeddings(Dialect::Cohere),
            "/models" | "/v1/models" => Self::Models,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_published_clients_is_known() {
        let chat = |dialect| Operation::Chat(dialect);
        for (path, wanted) in [
            ("", chat(Dialect::OpenAi)),
            ("/v1/chat/completions", chat(Dialect::OpenAi)),
            ("/chat/completions", chat(Dialect::OpenAi)),
            ("/v1/responses", chat(Dialect::Responses)),
            ("/v1/messages", chat(Dialect::Anthropic)),
            ("/v1beta/models/gemini-2.5-pro:generateContent", chat(Dialect::Gemini)),
            ("/v1beta/models/g:streamGenerateContent", Operation::GeminiStream),
            ("/v2/chat", chat(Dialect::Cohere)),
            ("/compatibility/v1/chat/completions", chat(Dialect::OpenAi)),
            ("/v1/embeddings", Operation::Embeddings(Dialect::OpenAi)),
            ("/v1/models", Operation::Models),
            ("/v1/files", Operation::Other),
        ] {
            assert_eq!(Operation::of(path), wanted, "{path}");
        }
    }
}
