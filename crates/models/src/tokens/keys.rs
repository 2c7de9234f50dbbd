//! The names of members that are recognized in requests and answers.

use std::sync::LazyLock;

macro_rules! keys {
    ($($key:ident $name:literal),* $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Key { $($key,)* Other }

        const KEYS: &[(&str, Key)] = &[$(($name, Key::$key)),*];
    };
}

keys! {
    Arguments "arguments", BilledUnits "billed_units", BlockReason "blockReason", Cache "cache_control",
    CacheCreation "cache_creation", CacheWriteTokens "cache_write_tokens",
    CacheCreationInputTokens "cache_creation_input_tokens",
    CacheReadInputTokens "cache_read_input_tokens", CachedContent "cachedContent",
    CachedContentSnake "cached_content", CachedContentTokenCount "cachedContentTokenCount",
    CachedTokens "cached_tokens", Candidates "candidates", CandidatesTokenCount "candidatesTokenCount",
    Choices "choices", CompletionTokens "completion_tokens",
    CompletionTokensDetails "completion_tokens_details", Content "content",
    ContentBlock "content_block", Contents "contents", Data "data", Delta "delta",
    Description "description", Documents "documents", EncryptedContent "encrypted_content",
    EphemeralHour "ephemeral_1h_input_tokens", Error "error",
    FileData "fileData", FinishReason "finish_reason",
    FinishReasonCamel "finishReason", Function "function", FunctionCall "functionCall",
    FunctionCallSnake "function_call", FunctionDeclarations "functionDeclarations",
    FunctionDeclarationsSnake "function_declarations", FunctionResponse "functionResponse",
    FunctionResponseSnake "function_response", Functions "functions", Id "id", ImageUrl "image_url",
    InlineData "inlineData", InlineDataSnake "inline_data", Input "input", InputSchema "input_schema",
    InputTokens "input_tokens", InputTokensDetails "input_tokens_details", Inputs "inputs",
    Instructions "instructions", Message "message", Messages "messages", Meta "meta",
    MimeType "mimeType", MimeTypeSnake "mime_type", Model "model", ModelVersion "modelVersion",
    Name "name", Output "output", OutputTokens "output_tokens",
    OutputTokensDetails "output_tokens_details", Parameters "parameters", PartialJson "partial_json",
    Parts "parts", Prompt "prompt", PromptFeedback "promptFeedback", PromptCacheHitTokens "prompt_cache_hit_tokens",
    PromptTokenCount "promptTokenCount", PromptTokens "prompt_tokens",
    PromptTokensDetails "prompt_tokens_details", Reasoning "reasoning",
    ReasoningContent "reasoning_content", ReasoningTokens "reasoning_tokens", Refusal "refusal",
    Requests "requests", Response "response", Role "role", SequenceNumber "sequence_number",
    Signature "signature", Source "source",
    Strict "strict", Summary "summary", System "system", SystemInstruction "systemInstruction",
    SystemInstructionSnake "system_instruction", Text "text", Texts "texts", Thinking "thinking", ThinkingTokens "thinking_tokens",
    Thought "thought", ThoughtSignature "thoughtSignature",
    ThoughtSignatureSnake "thought_signature", ThoughtsTokenCount "thoughtsTokenCount",
    Tokens "tokens", ToolCalls "tool_calls", ToolPlan "tool_plan",
    ToolUsePromptTokenCount "toolUsePromptTokenCount", Tools "tools",
    TotalTokenCount "totalTokenCount", TotalTokens "total_tokens", Transcript "transcript",
    Type "type", Url "url", Usage "usage", UsageMetadata "usageMetadata", XGroq "x_groq",
    // Settings of a request that add no input.
    FrequencyPenalty "frequency_penalty", GenerationConfig "generationConfig",
    GenerationConfigSnake "generation_config", Include "include", K "k", Logprobs "logprobs",
    LogitBias "logit_bias", MaxCompletionTokens "max_completion_tokens",
    MaxOutputTokens "max_output_tokens", MaxTokens "max_tokens", MaxToolCalls "max_tool_calls",
    Metadata "metadata", Modalities "modalities", N "n", P "p",
    ParallelToolCalls "parallel_tool_calls",
    PresencePenalty "presence_penalty", PromptCache "prompt_cache_key",
    PromptCacheRetention "prompt_cache_retention", ReasoningEffort "reasoning_effort",
    ReasoningFormat "reasoning_format", ResponseFormat "response_format",
    SafetyIdentifier "safety_identifier", SafetyMode "safety_mode", SafetyPrompt "safe_prompt",
    SafetySettings "safetySettings", Seed "seed", ServiceTier "service_tier", Stop "stop",
    StopSequences "stop_sequences", Store "store", Stream "stream",
    StreamOptions "stream_options", Temperature "temperature", ToolChoice "tool_choice",
    ToolConfig "toolConfig", ToolConfigSnake "tool_config", TopK "top_k", TopLogprobs "top_logprobs", TopP "top_p",
    Truncation "truncation", User "user", Verbosity "verbosity", EncodingFormat "encoding_format",
    Dimensions "dimensions", InputType "input_type", EmbeddingTypes "embedding_types",
    TaskType "taskType", Title "title", OutputDimensionality "outputDimensionality",
    RandomSeed "random_seed", ToolCallId "tool_call_id", Annotations "annotations",
    Citations "citations", Prefix "prefix",
}

impl Key {
    /// Looks up a name. Each event of a stream has some fifteen names, so only few candidates are
    /// compared.
    pub(super) fn of(name: &[u8]) -> Self {
        static BY_LENGTH: LazyLock<Vec<Vec<(&str, Key)>>> = LazyLock::new(|| {
            let longest = KEYS.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
            let of_length =
                |length| KEYS.iter().copied().filter(move |(name, _)| name.len() == length);
            (0..=longest).map(|length| of_length(length).collect()).collect()
        });
        let Some((first, known)) = name.first().zip(BY_LENGTH.get(name.len())) else {
            return Self::Other;
        };
        let is_it =
            |(known, _): &&(&str, Key)| known.as_bytes()[0] == *first && known.as_bytes() == name;
        known.iter().find(is_it).map_or(Self::Other, |(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found() {
        for (name, key) in KEYS {
            assert_eq!(Key::of(name.as_bytes()), *key, "{name}");
        }
        for other in ["", "usages", "usagE", "x", "a name that is longer than any of those here"] {
            assert_eq!(Key::of(other.as_bytes()), Key::Other, "{other}");
        }
    }
}
