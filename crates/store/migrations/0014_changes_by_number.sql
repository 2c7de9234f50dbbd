-- SQLite only. A key declared INTEGER is the table's own order there; one declared BIGINT is an index beside the table.
-- Each write adds a change, so each write wrote one page more than it had to.
CREATE TABLE changes_by_number (
    revision     INTEGER PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    resource_id  TEXT NOT NULL,
    parent       TEXT NOT NULL,
    name         TEXT NOT NULL,
    act          TEXT NOT NULL,
    version      BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    at           BIGINT NOT NULL
);
INSERT INTO changes_by_number (revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at)
SELECT revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at FROM changes;
DROP TABLE changes;
ALTER TABLE changes_by_number RENAME TO changes;
CREATE INDEX changes_by_workspace ON changes (workspace_id, revision);
