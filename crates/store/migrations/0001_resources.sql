-- Resources of every kind, the feed of their changes, and what hangs on both.

CREATE TABLE resources (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    -- Names of the objects around it, joined with `/`; empty at the top.
    parent       TEXT NOT NULL,
    name         TEXT NOT NULL,
    external_id  TEXT,
    status       TEXT,
    -- Lower-case text that the `q` filter searches.
    search       TEXT NOT NULL,
    -- What the user wishes: the wire form without read-only members, secrets sealed.
    wish         TEXT NOT NULL,
    -- What the server knows beside it.
    state        TEXT NOT NULL,
    -- Id of the key that seals the secrets in `wish`; null when there are none.
    seal_key     TEXT,
    -- Grows by one with each write of this row.
    version      BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    created_by   TEXT NOT NULL,
    updated_by   TEXT NOT NULL
);
CREATE UNIQUE INDEX resources_by_name ON resources (workspace_id, kind, parent, name);
CREATE INDEX resources_by_age ON resources (workspace_id, kind, parent, created_at, id);
CREATE INDEX resources_by_external_id ON resources (workspace_id, kind, external_id) WHERE external_id IS NOT NULL;

-- How many objects of a kind a workspace has: for quotas and for the totals of lists.
CREATE TABLE resource_counts (
    workspace_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    total        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, kind)
);

-- One row per write, in the order in which followers may see them.
CREATE TABLE changes (
    revision     BIGINT PRIMARY KEY,
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
CREATE INDEX changes_by_workspace ON changes (workspace_id, revision);
CREATE INDEX changes_by_age ON changes (at);
