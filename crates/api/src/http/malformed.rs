//! Everything about a request that cannot be parsed or makes no sense, one variant per mistake.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a JSON body is required")]
    NoBody,
    #[error("the body is not valid JSON: line {line}, column {column}")]
    NotJson { line: usize, column: usize },
    #[error("the body holds a NUL character, which no text may have")]
    BodyNul,
    #[error("the body ended before its announced length")]
    CutBody,
    #[error(
        "the body is not a message of JSON-RPC 2.0, such as a request with `jsonrpc`, `id` and `method`"
    )]
    NotRpc,
    /// A rule of MCP that its library checks; the text is the library's.
    #[error("{why}")]
    Mcp { why: String },
    #[error("the body must be a JSON object: the arguments of the task")]
    TriggerBody,
    #[error("the body is not a client with `name` and `redirect_uris`: {why}")]
    ClientBody { why: String },
    #[error("the path is not valid UTF-8 after percent-decoding")]
    PathNotUtf8,
    #[error("the path holds a NUL character")]
    PathNul,
    #[error("the query holds a NUL character")]
    QueryNul,
    #[error("query parameter `{name}`: {why}")]
    Query { name: String, why: String },
    #[error("query parameter `{name}` is given more than once")]
    QueryTwice { name: String },
    #[error("`Idempotency-Key` must be 1 to {max} visible ASCII characters")]
    IdempotencyKey { max: usize },
    #[error("`If-Match` must be the `ETag` of an answer, such as `\"3\"`")]
    IfMatch,
    #[error("`Last-Event-ID` must be a revision")]
    LastEventId,
    #[error("`kind` does not know `{given}`; it knows {known}")]
    UnknownKind { given: String, known: String },
    #[error("`{0}` is required")]
    Required(&'static str),
    #[error("`image` is required with `skip-build=true`")]
    ImageRequired,
    #[error("`name` cannot be changed: it must equal the name in the path")]
    NameChanged,
    #[error(transparent)]
    Logs(#[from] LogsRule),
    #[error(transparent)]
    Metrics(#[from] MetricsRule),
    #[error(transparent)]
    ModelUsage(#[from] ModelUsageRule),
}

/// Rules for queries of logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogsRule {
    #[error("`{name}` must be a UTC time such as `2026-04-16T09:30:00`")]
    Time { name: &'static str },
    #[error("`start` must be before `end`, and at most 3 days before it")]
    Range,
    #[error("`limit` must be 1 to {limit_max} and `offset` at least 0")]
    Page { limit_max: i64 },
    #[error("`search` must have at most {max} characters")]
    Search { max: usize },
    #[error("`resourceType` must be one of {known}")]
    ResourceType { known: String },
    #[error("`workloadIds` is required: the name of a workload")]
    NoWorkload,
    #[error("`workloadIds` must name at most {max} workloads")]
    ManyWorkloads { max: usize },
    #[error("`severity` must be `all` or some of {known}")]
    Severity { known: String },
}

/// Rules for queries of cost and usage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsRule {
    #[error("`{name}` is required: an RFC 3339 time in UTC such as `2026-04-16T00:00:00Z`")]
    NoTime { name: &'static str },
    #[error("`{name}` must be an RFC 3339 time in UTC such as `2026-04-16T00:00:00Z`")]
    Time { name: &'static str },
    #[error("`endTime` must be after `startTime`")]
    Window,
    #[error("`resolution` must be hourly, daily, weekly or monthly")]
    Resolution,
    #[error(
        "the window may have at most {days_max} days with this resolution; choose a coarser one"
    )]
    LongWindow { days_max: i64 },
    #[error("`groupBy` knows {known}")]
    Dimension { known: String },
    #[error("`groupBy` takes at most {max} dimensions")]
    ManyDimensions { max: usize },
    #[error("`groupBy` names a dimension twice")]
    DimensionTwice,
    #[error("`limit` must be at least 1")]
    Limit,
    #[error(
        "the window has {steps} steps with this resolution, and {max} are answered at most; shorten it"
    )]
    ManySteps { steps: usize, max: usize },
    #[error("`resourceType` must be one of {known}")]
    ResourceType { known: String },
    #[error("`billingDimension` must be one of {known}")]
    BillingDimension { known: String },
    #[error("`label` and `unit` are not supported")]
    Unsupported,
}

/// Rules for queries of model usage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelUsageRule {
    #[error("`{name}` must be an RFC 3339 time in UTC such as `2026-04-16T00:00:00Z`")]
    Time { name: &'static str },
    #[error("`end` must be after `start`")]
    Window,
    #[error("the window may have at most {days_max} days with this resolution")]
    LongWindow { days_max: i64 },
    #[error("`resolution` must be hourly, daily or total")]
    Resolution,
    #[error("`groupBy` knows {known}")]
    Group { known: String },
    #[error("`groupBy` names something twice")]
    GroupTwice,
    #[error(
        "the answer would have more than {max} entries: ask for a shorter window, a coarser resolution or fewer groups"
    )]
    ManyRows { max: usize },
}
