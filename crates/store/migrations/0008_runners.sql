-- Workflow jobs of a code host that jobs of ours run, the runners they get, and what is polled for them.

CREATE TABLE workflow_jobs (
    -- The id at the code host is unique in a workspace only: whoever signs for one workspace must not be able to
    -- take an id from another.
    workspace_id    TEXT NOT NULL,
    workflow_job_id BIGINT NOT NULL,
    run_id          BIGINT NOT NULL,
    -- The job that runs it. The row outlives it, so that a late webhook starts nothing.
    job_id          TEXT NOT NULL,
    -- `owner/repo`, lower case.
    repository      TEXT NOT NULL,
    -- wanted, starting, waiting, picked_up, done, lost.
    state           TEXT NOT NULL,
    -- Since when.
    since           BIGINT NOT NULL,
    -- Runners that were started in vain.
    attempts        BIGINT NOT NULL,
    -- Runners that were begun: part of their names, so that none has the name of another.
    serial          BIGINT NOT NULL,
    -- Name of the runner; from `starting` to `picked_up`.
    runner          TEXT,
    -- Its id at the code host and its execution here; from `waiting` to `picked_up`.
    runner_id       BIGINT,
    execution_id    TEXT,
    -- When it has to be looked at next. Null when never.
    due_at          BIGINT,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, workflow_job_id)
);
CREATE INDEX workflow_jobs_due ON workflow_jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX workflow_jobs_open ON workflow_jobs (workspace_id, repository) WHERE due_at IS NOT NULL;
CREATE INDEX workflow_jobs_of_job ON workflow_jobs (job_id, state) WHERE due_at IS NOT NULL;
CREATE INDEX workflow_jobs_runner ON workflow_jobs (workspace_id, runner) WHERE runner IS NOT NULL;
CREATE INDEX workflow_jobs_settled ON workflow_jobs (since) WHERE due_at IS NULL;

-- Runners that nobody needs any more and that the code host may still know.
CREATE TABLE leaving_runners (
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    repository   TEXT NOT NULL,
    runner_id    BIGINT NOT NULL,
    execution_id TEXT NOT NULL,
    tries        BIGINT NOT NULL,
    due_at       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, name)
);
CREATE INDEX leaving_runners_due ON leaving_runners (due_at);

-- One row for each repository that a workspace has runners for: whoever moves `due_at` on asks the code host.
CREATE TABLE runner_repositories (
    workspace_id TEXT NOT NULL,
    repository   TEXT NOT NULL,
    due_at       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, repository)
);
CREATE INDEX runner_repositories_due ON runner_repositories (due_at);

-- Webhooks that were taken, by the sender's id of the delivery.
CREATE TABLE webhook_deliveries (
    workspace_id TEXT NOT NULL,
    delivery     TEXT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, delivery)
);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (at);
