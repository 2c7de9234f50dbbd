-- Names under which requests come in, each of one resource in the whole server: `sbx-{name}-{workspace}` and
-- `{label}.preview` in front of the server's own name, hosts of custom domains, and `*.{domain}` for verified domains.
-- The server fills it at its next start: where previews answer is in their wishes.
CREATE TABLE edge_names (
    name         TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    resource_id  TEXT NOT NULL
);
CREATE INDEX edge_names_by_resource ON edge_names (resource_id);
