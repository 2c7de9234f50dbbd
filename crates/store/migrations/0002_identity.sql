-- Accounts, people, keys and tokens. What only needs comparing is kept as a digest.

CREATE TABLE accounts (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    plan       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE users (
    id             TEXT PRIMARY KEY,
    -- Lower case.
    email          TEXT NOT NULL UNIQUE,
    given_name     TEXT NOT NULL,
    family_name    TEXT NOT NULL,
    -- Argon2id in PHC form; null for people who only sign in elsewhere.
    password       TEXT,
    email_verified BIGINT NOT NULL,
    created_at     BIGINT NOT NULL
);

CREATE TABLE account_admins (
    account_id TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    PRIMARY KEY (account_id, user_id)
);
CREATE INDEX account_admins_by_user ON account_admins (user_id);

CREATE TABLE workspaces (
    id           TEXT PRIMARY KEY,
    account_id   TEXT NOT NULL,
    name         TEXT NOT NULL UNIQUE,
    display_name TEXT NOT NULL,
    labels       TEXT NOT NULL,
    settings     TEXT NOT NULL,
    region       TEXT,
    status       TEXT NOT NULL,
    version      BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    created_by   TEXT NOT NULL,
    updated_by   TEXT NOT NULL
);
CREATE INDEX workspaces_by_account ON workspaces (account_id);

CREATE TABLE members (
    workspace_id TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    role         TEXT NOT NULL,
    -- How the person came in; null for those who were there first.
    source       TEXT,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_by_user ON members (user_id);

CREATE TABLE invitations (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    email        TEXT NOT NULL,
    role         TEXT NOT NULL,
    invited_by   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE UNIQUE INDEX invitations_by_workspace ON invitations (workspace_id, email);
CREATE INDEX invitations_by_email ON invitations (email);

CREATE TABLE service_accounts (
    id            TEXT PRIMARY KEY,
    workspace_id  TEXT NOT NULL,
    name          TEXT NOT NULL,
    description   TEXT NOT NULL,
    role          TEXT NOT NULL,
    secret_digest TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    created_by    TEXT NOT NULL,
    updated_by    TEXT NOT NULL
);
CREATE INDEX service_accounts_by_workspace ON service_accounts (workspace_id);

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    digest       TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    subject_type TEXT NOT NULL,
    subject_id   TEXT NOT NULL,
    -- As the owner wrote it, such as `30d`; null when the key never expires.
    expires_in   TEXT,
    expires_at   BIGINT,
    created_at   BIGINT NOT NULL,
    created_by   TEXT NOT NULL
);
CREATE INDEX api_keys_by_subject ON api_keys (subject_id, created_at);

CREATE TABLE oauth_clients (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL,
    name          TEXT NOT NULL,
    redirect_uris TEXT NOT NULL,
    -- Null for public clients.
    secret_digest TEXT,
    created_at    BIGINT NOT NULL,
    created_by    TEXT NOT NULL
);
CREATE INDEX oauth_clients_by_account ON oauth_clients (account_id);

-- What a client was allowed once: all tokens that came of it. Deleting the row revokes them.
CREATE TABLE grants (
    id           TEXT PRIMARY KEY,
    client_id    TEXT NOT NULL,
    subject_type TEXT NOT NULL,
    subject_id   TEXT NOT NULL,
    scope        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX grants_by_subject ON grants (subject_type, subject_id, created_at, id);
CREATE INDEX grants_by_client ON grants (client_id);
CREATE INDEX grants_by_expiry ON grants (expires_at);

CREATE TABLE refresh_tokens (
    digest   TEXT PRIMARY KEY,
    grant_id TEXT NOT NULL,
    -- A second use after this shows a stolen token.
    used_at  BIGINT
);
CREATE INDEX refresh_tokens_by_grant ON refresh_tokens (grant_id);

CREATE TABLE authorization_codes (
    digest       TEXT PRIMARY KEY,
    client_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    challenge    TEXT,
    scope        TEXT NOT NULL,
    expires_at   BIGINT NOT NULL,
    -- What its first use gave; a second use takes it back.
    grant_id     TEXT
);
CREATE INDEX authorization_codes_by_expiry ON authorization_codes (expires_at);

CREATE TABLE device_codes (
    digest     TEXT PRIMARY KEY,
    user_code  TEXT NOT NULL UNIQUE,
    client_id  TEXT NOT NULL,
    scope      TEXT NOT NULL,
    decision   TEXT NOT NULL,
    user_id    TEXT,
    interval_s BIGINT NOT NULL,
    polled_at  BIGINT,
    expires_at BIGINT NOT NULL
);
CREATE INDEX device_codes_by_expiry ON device_codes (expires_at);

CREATE TABLE browser_sessions (
    digest     TEXT PRIMARY KEY,
    user_id    TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX browser_sessions_by_user ON browser_sessions (user_id);
CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);

CREATE TABLE signing_keys (
    id          TEXT PRIMARY KEY,
    sealed_seed TEXT NOT NULL,
    seal_key    TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    -- Null for the key that signs; others verify until this time.
    retires_at  BIGINT
);
