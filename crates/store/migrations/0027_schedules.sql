-- Schedules and their firings over all sandboxes of a workspace.
ALTER TABLE schedule_firings ADD COLUMN workspace_id TEXT NOT NULL DEFAULT '';
UPDATE schedule_firings SET workspace_id = (SELECT workspace_id FROM resources WHERE resources.id = schedule_firings.sandbox_id);
CREATE INDEX schedule_firings_of_workspace ON schedule_firings (workspace_id, created_at, id);
CREATE INDEX resources_schedules_by_age ON resources (workspace_id, kind, created_at, id) WHERE kind = 'schedule';

-- How many firings began in each minute, and what came of them. Firings themselves are deleted early, when their schedule has
-- newer ones. The counts of a minute are spread over some rows, so that firings at the same time do not wait for each other.
CREATE TABLE schedule_minutes (
    workspace_id TEXT NOT NULL,
    minute       BIGINT NOT NULL,
    shard        BIGINT NOT NULL,
    begun        BIGINT NOT NULL,
    succeeded    BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, minute, shard)
);
CREATE INDEX schedule_minutes_by_age ON schedule_minutes (minute);
