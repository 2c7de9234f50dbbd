-- What tasks printed, as chunks of lines. A chunk never changes.
CREATE TABLE log_chunks (
    execution_id TEXT NOT NULL,
    task BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    -- In its attempt, from 1.
    number BIGINT NOT NULL,
    workspace_id TEXT NOT NULL,
    job TEXT NOT NULL,
    -- The public name of the execution.
    execution TEXT NOT NULL,
    -- Of the first and the last line; nanoseconds since 1970.
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL,
    lines BIGINT NOT NULL,
    -- A bit for each severity that a line has.
    severities BIGINT NOT NULL,
    -- Bytes of text of the attempt so far.
    total_bytes BIGINT NOT NULL,
    -- Up to where the output of the attempt is in its chunks, and the lines that had only begun there.
    read_to BIGINT NOT NULL,
    begun TEXT,
    text TEXT NOT NULL,
    PRIMARY KEY (execution_id, task, attempt, number)
);
CREATE INDEX log_chunks_of_job ON log_chunks (workspace_id, job, last_ns);
CREATE INDEX log_chunks_of_execution ON log_chunks (workspace_id, job, execution, last_ns);
CREATE INDEX log_chunks_by_age ON log_chunks (last_ns);
