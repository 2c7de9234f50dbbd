-- The durable queue: executions of jobs, their tasks, and who works on them.
-- Whoever changes a task holds the row of its execution, so the counts there are always exact.

CREATE TABLE executions (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    -- The job, which may be gone by now: history stays for a while.
    job_id       TEXT NOT NULL,
    job          TEXT NOT NULL,
    -- By which callers know it; they may choose it.
    name         TEXT NOT NULL,
    -- open, cancelling, succeeded, failed or cancelled.
    phase        TEXT NOT NULL,
    total        BIGINT NOT NULL,
    -- The first task that was never claimed. Only those before it have rows.
    next         BIGINT NOT NULL,
    -- Tasks at once, and megabytes of each.
    parallelism  BIGINT NOT NULL,
    memory_mb    BIGINT NOT NULL,
    -- Of each task.
    retries_max  BIGINT NOT NULL,
    -- Tasks by state: running, waiting for another try, and ended.
    running      BIGINT NOT NULL,
    waiting      BIGINT NOT NULL,
    succeeded    BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    cancelled    BIGINT NOT NULL,
    -- Tries beyond the first of a task.
    retried      BIGINT NOT NULL,
    -- From when on a task can be claimed; null when none can be.
    ready_at     BIGINT,
    -- Grows with each claim: the executions of a workspace take turns by it.
    turn         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    started_at   BIGINT,
    ended_at     BIGINT
);
CREATE UNIQUE INDEX executions_by_name ON executions (workspace_id, job, name);
CREATE INDEX executions_by_age ON executions (workspace_id, job, created_at, id);
CREATE INDEX executions_ready ON executions (workspace_id, turn, id) WHERE ready_at IS NOT NULL;
CREATE INDEX executions_due ON executions (ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX executions_running ON executions (workspace_id, running) WHERE running > 0;
CREATE INDEX executions_open ON executions (workspace_id, job) WHERE ended_at IS NULL;
CREATE INDEX executions_ended ON executions (ended_at, id) WHERE ended_at IS NOT NULL;

-- What only those need who run the tasks of an execution.
CREATE TABLE execution_orders (
    execution_id TEXT PRIMARY KEY REFERENCES executions (id) ON DELETE CASCADE DEFERRABLE,
    -- What was decided when it was made, sealed: environments hold secrets.
    plan         TEXT NOT NULL,
    -- The arguments of all tasks: a JSON object each, one a line.
    arguments    TEXT NOT NULL
);

CREATE TABLE tasks (
    execution_id TEXT NOT NULL REFERENCES executions (id) ON DELETE CASCADE DEFERRABLE,
    -- From 0.
    task         BIGINT NOT NULL,
    -- pending, running, succeeded, failed or cancelled.
    state        TEXT NOT NULL,
    -- The newest try, from 1, and who has it or had it.
    attempt      BIGINT NOT NULL,
    holder       TEXT NOT NULL,
    -- Tries that failed, and tries that were lost through no fault of the task.
    failures     BIGINT NOT NULL,
    losses       BIGINT NOT NULL,
    -- Null unless it waits for another try.
    not_before   BIGINT,
    claimed_at   BIGINT NOT NULL,
    -- Of the newest try.
    started_at   BIGINT,
    ended_at     BIGINT,
    -- Why the newest try that ended did not succeed: a name, an exit code or a signal, a text.
    failure      TEXT,
    failure_code BIGINT,
    failure_text TEXT,
    PRIMARY KEY (execution_id, task)
);
CREATE INDEX tasks_held ON tasks (holder, execution_id) WHERE state = 'running';
CREATE INDEX tasks_waiting ON tasks (execution_id, not_before) WHERE state = 'pending';

-- Machines that take tasks. A row that is not renewed for as long as a lease lasts is removed, and its tasks are lost.
CREATE TABLE holders (
    name       TEXT PRIMARY KEY,
    slots      BIGINT NOT NULL,
    memory_mb  BIGINT NOT NULL,
    renewed_at BIGINT NOT NULL
);
