-- What usage costs, and what may be spent. Decimals are texts, so that no cent is lost in a float.

CREATE TABLE price_versions (
    -- Empty for the prices that the installation began with: they go for accounts until they say otherwise.
    account_id TEXT NOT NULL,
    valid_from BIGINT NOT NULL,
    -- The price of one unit by billing dimension, as JSON.
    prices     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (account_id, valid_from)
);

CREATE TABLE budgets (
    id              TEXT PRIMARY KEY,
    account_id      TEXT NOT NULL,
    name            TEXT NOT NULL,
    -- Name of the workspace that it is for; null for the whole account.
    workspace       TEXT,
    -- US dollars in a calendar month.
    amount          TEXT NOT NULL,
    -- Shares of the amount that are told of, in percent, as JSON.
    thresholds      TEXT NOT NULL,
    hard_limit      BIGINT NOT NULL,
    webhook_url     TEXT,
    webhook_secret  TEXT,
    version         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    created_by      TEXT NOT NULL,
    updated_by      TEXT NOT NULL,
    -- Until when new work is refused because the money is spent; null while there is some left.
    exhausted_until BIGINT
);
CREATE UNIQUE INDEX budgets_by_name ON budgets (account_id, name);
CREATE INDEX budgets_exhausted ON budgets (account_id) WHERE exhausted_until IS NOT NULL;

-- Shares that were reached: a row is what makes sure that nobody is told twice.
CREATE TABLE budget_crossings (
    budget_id  TEXT NOT NULL REFERENCES budgets (id) ON DELETE CASCADE DEFERRABLE,
    -- The beginning of the month.
    period     BIGINT NOT NULL,
    threshold  BIGINT NOT NULL,
    -- Of the budget when it was reached: another amount has other shares.
    amount     TEXT NOT NULL,
    spent      TEXT NOT NULL,
    crossed_at BIGINT NOT NULL,
    PRIMARY KEY (budget_id, period, threshold)
);
