-- Resources of every kind, the feed of their changes, and what hangs on both.

CREATE TABLE resources (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    -- Names of the objects around it, joined with `/`; empty at the top.
    parent       TEXT NOT NULL,
    name         TEXT NOT NULL,
    external_id  TEXT,
    -- Empty for kinds without one.
    status       TEXT NOT NULL,
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
    -- The revision of its latest change in the feed.
    revision     BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    created_by   TEXT NOT NULL,
    updated_by   TEXT NOT NULL
);
CREATE INDEX resources_by_age ON resources (workspace_id, kind, parent, created_at, id);
CREATE INDEX resources_by_external_id ON resources (workspace_id, kind, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX resources_by_seal_key ON resources (seal_key, id) WHERE seal_key IS NOT NULL;
-- Last, so that PostgreSQL prefers it to `resources_by_age` for names while it knows nothing of the rows yet.
CREATE UNIQUE INDEX resources_by_name ON resources (workspace_id, kind, parent, name);

-- How many objects of a kind and status a workspace has: for quotas and for the totals of lists.
-- Several rows hold one count between them, so that writers on PostgreSQL do not queue for one row.
CREATE TABLE resource_counts (
    workspace_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    status       TEXT NOT NULL,
    shard        BIGINT NOT NULL,
    total        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, kind, status, shard)
);

-- Earlier wishes of resources, to go back to.
CREATE TABLE revisions (
    id          TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    -- Grows by one with each revision of a resource.
    number      BIGINT NOT NULL,
    wish        TEXT NOT NULL,
    seal_key    TEXT,
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    -- When it last began to serve; null when it never did.
    activated_at BIGINT,
    PRIMARY KEY (resource_id, id)
);
CREATE UNIQUE INDEX revisions_by_number ON revisions (resource_id, number);
CREATE INDEX revisions_by_seal_key ON revisions (seal_key, resource_id, id) WHERE seal_key IS NOT NULL;

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

-- One row: where revisions start, see the module `feed`.
CREATE TABLE feed_origin (
    id           BIGINT PRIMARY KEY,
    -- Added to PostgreSQL's transaction numbers.
    xid_offset   BIGINT NOT NULL,
    -- Changes up to this revision are no longer kept.
    trimmed_to   BIGINT NOT NULL
);
INSERT INTO feed_origin (id, xid_offset, trimmed_to) VALUES (1, 0, 0);

-- First answers to requests that carried a key of the caller's, to give again.
CREATE TABLE idempotency (
    workspace_id TEXT NOT NULL,
    claim        TEXT NOT NULL,
    -- Of method, path and body: the same key with another request is refused.
    digest       TEXT NOT NULL,
    status       BIGINT,
    -- Sealed: it may show secrets that are shown only once.
    body         TEXT,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, claim)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- What the server keeps for itself between starts.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
