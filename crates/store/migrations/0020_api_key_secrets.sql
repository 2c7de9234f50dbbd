-- The API keys of service accounts themselves, sealed: S3 clients do not send their key, they sign with it. Keys that were made
-- before this table have no row, and sign nothing.
CREATE TABLE api_key_secrets (
    key_id TEXT PRIMARY KEY,
    secret TEXT NOT NULL
);
