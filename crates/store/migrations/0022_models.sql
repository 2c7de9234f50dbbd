-- Limits of models, what servers hold of them, and what models were used.

-- One window of a limit of one of those whose use it counts.
CREATE TABLE model_limits (
    limit_id  TEXT NOT NULL,
    measure   TEXT NOT NULL,
    subject   TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    ends_at   BIGINT NOT NULL,
    used      BIGINT NOT NULL,
    PRIMARY KEY (limit_id, measure, subject, starts_at, ends_at)
);
CREATE INDEX model_limits_by_end ON model_limits (ends_at);

-- What a ledger may give out of a limit without asking. Counts as used for all others.
CREATE TABLE model_grants (
    limit_id  TEXT NOT NULL,
    measure   TEXT NOT NULL,
    subject   TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    ends_at   BIGINT NOT NULL,
    ledger    TEXT NOT NULL,
    held      BIGINT NOT NULL,
    -- When it got less than it needs; null when it got that.
    wanted_at BIGINT,
    PRIMARY KEY (limit_id, measure, subject, starts_at, ends_at, ledger)
);
CREATE INDEX model_grants_by_ledger ON model_grants (ledger);
CREATE INDEX model_grants_by_end ON model_grants (ends_at);

-- How far the journal of each server is taken in.
CREATE TABLE model_ledgers (
    ledger   TEXT PRIMARY KEY,
    -- Of its last batch.
    number   BIGINT NOT NULL,
    -- Of the last record of its journal that is in it.
    position BIGINT NOT NULL,
    seen_at  BIGINT NOT NULL
);

CREATE TABLE model_usage (
    workspace_id   TEXT NOT NULL,
    -- Since 1970.
    hour           BIGINT NOT NULL,
    model          TEXT NOT NULL,
    model_id       TEXT NOT NULL,
    -- The key, or the person behind a token.
    caller         TEXT NOT NULL,
    -- Empty: none was named.
    end_user       TEXT NOT NULL,
    tag            TEXT NOT NULL,
    provider       TEXT NOT NULL,
    provider_model TEXT NOT NULL,
    calls          BIGINT NOT NULL,
    failed         BIGINT NOT NULL,
    estimated      BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cached         BIGINT NOT NULL,
    cache_written  BIGINT NOT NULL,
    reasoning      BIGINT NOT NULL,
    -- Nanodollars.
    cost           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, hour, model, model_id, caller, end_user, tag, provider, provider_model)
);
CREATE INDEX model_usage_by_hour ON model_usage (hour);
