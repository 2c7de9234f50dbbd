-- Which images of registries a workspace may run: what a registry let it have, with credentials of its own or without any.
CREATE TABLE image_rights (
    workspace_id TEXT NOT NULL,
    -- In the form in which all spellings of it are the same.
    name         TEXT NOT NULL,
    -- What the name meant for this workspace when it asked.
    digest       TEXT NOT NULL,
    granted_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, name)
);
