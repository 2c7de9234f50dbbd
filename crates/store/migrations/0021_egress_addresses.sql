-- Addresses that egress gateways were given, each to one in the whole server. One that was given back has an empty resource: the
-- workspace that had it may take it again at once, others some time later.
CREATE TABLE egress_addresses (
    address      TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    resource_id  TEXT NOT NULL,
    freed_at     BIGINT NOT NULL
);
CREATE INDEX egress_addresses_by_resource ON egress_addresses (resource_id);
