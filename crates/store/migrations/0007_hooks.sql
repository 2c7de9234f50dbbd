-- Calls to addresses that users gave: what an execution came to, that a budget was crossed.
CREATE TABLE deliveries (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    -- What it is about: an object by kind and name, and for jobs the execution by the name that callers know.
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    execution    TEXT,
    -- The execution whose end it waits for.
    execution_id TEXT,
    url          TEXT NOT NULL,
    -- Signs the body; sealed. Null: it goes unsigned.
    secret       TEXT,
    body         TEXT NOT NULL,
    -- waiting (for the execution), pending, delivered or failed.
    state        TEXT NOT NULL,
    -- Attempts that have ended, and how many there may be; null: as many as the settings say.
    attempts     BIGINT NOT NULL,
    attempts_max BIGINT,
    -- Rises with each claim. What came of an attempt is noted once, under the number of its claim.
    claim        BIGINT NOT NULL,
    -- When the next attempt is due. While one is made, when it is taken for lost.
    due_at       BIGINT NOT NULL,
    last_status  BIGINT,
    last_error   TEXT,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT
);
CREATE INDEX deliveries_due ON deliveries (due_at, id) WHERE state = 'pending';
CREATE INDEX deliveries_open ON deliveries (workspace_id) WHERE state IN ('waiting', 'pending');
CREATE INDEX deliveries_waiting ON deliveries (execution_id) WHERE state = 'waiting';
CREATE INDEX deliveries_by_age ON deliveries (workspace_id, kind, name, created_at, id);
CREATE INDEX deliveries_ended ON deliveries (ended_at) WHERE ended_at IS NOT NULL;

-- How far the clock has come with each cron trigger of a job. They go with the job.
CREATE TABLE cron_marks (
    job_id     TEXT NOT NULL REFERENCES resources (id) ON DELETE CASCADE DEFERRABLE,
    trigger_id TEXT NOT NULL,
    -- The line and the zone that it was made for: another line begins anew.
    line       TEXT NOT NULL,
    -- All that was due until then has been seen to.
    handled_at BIGINT NOT NULL,
    PRIMARY KEY (job_id, trigger_id)
);

-- Where requests reach triggers: no two triggers of a workspace have the same address.
CREATE TABLE trigger_addresses (
    workspace_id TEXT NOT NULL,
    address      TEXT NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    trigger_id   TEXT NOT NULL,
    PRIMARY KEY (workspace_id, address)
);
CREATE INDEX trigger_addresses_by_object ON trigger_addresses (workspace_id, kind, name);
