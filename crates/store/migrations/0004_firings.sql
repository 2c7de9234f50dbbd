-- What schedules of sandboxes did: one row for each time that one was due. They go with the sandbox.

CREATE TABLE schedule_firings (
    id           TEXT PRIMARY KEY,
    sandbox_id   TEXT NOT NULL REFERENCES resources (id) ON DELETE CASCADE DEFERRABLE,
    -- The id that the user knows the schedule by. A schedule that fires once is gone when it has fired.
    schedule     TEXT NOT NULL,
    -- Who fires it: a server that starts anew closes what it left open.
    server       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    timeout_s    BIGINT,
    -- Null until the sandbox has answered or could not be reached.
    executed_at  BIGINT,
    process_name TEXT,
    status_code  BIGINT,
    error        TEXT
);
CREATE INDEX schedule_firings_by_age ON schedule_firings (sandbox_id, created_at, id);
CREATE INDEX schedule_firings_open ON schedule_firings (server) WHERE executed_at IS NULL;
