-- Who names whom: policies, connections, volumes in use. Rows go with the object that names.

CREATE TABLE resource_references (
    -- Deferrable: a restore fills the tables in the order of their names.
    from_id      TEXT NOT NULL REFERENCES resources (id) ON DELETE CASCADE DEFERRABLE,
    workspace_id TEXT NOT NULL,
    from_kind    TEXT NOT NULL,
    from_name    TEXT NOT NULL,
    to_kind      TEXT NOT NULL,
    to_name      TEXT NOT NULL,
    PRIMARY KEY (from_id, to_kind, to_name)
);
CREATE INDEX resource_references_by_target ON resource_references (workspace_id, to_kind, to_name, from_kind, from_name);
