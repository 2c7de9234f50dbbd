-- Images in the making: from the address that sources are uploaded to, to the wish that is applied with the image.

CREATE TABLE builds (
    id           TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    -- What gets the image, which may be gone by now.
    resource_id  TEXT NOT NULL,
    kind         TEXT NOT NULL,
    -- As in agent/my-agent.
    repository   TEXT NOT NULL,
    -- awaited, arriving, queued, building, made, built, failed or cancelled.
    state        TEXT NOT NULL,
    -- What the resource is to be once there is an image, with its secrets sealed as in the resource. Null for an image
    -- that nothing runs, and after the end.
    wish         TEXT,
    seal_key     TEXT,
    created_by   TEXT NOT NULL,
    -- Who asked, and with which key, if it was one: the address is good as long as they are.
    asker_type   TEXT NOT NULL,
    asker_id     TEXT NOT NULL,
    asker_key    TEXT,
    -- The digest of the secret in the address of the upload.
    secret       TEXT NOT NULL,
    -- Which machine has the sources.
    machine      TEXT,
    -- Room that the sources take, or may take while they arrive.
    bytes        BIGINT NOT NULL,
    -- The newest try, from 1.
    attempt      BIGINT NOT NULL,
    -- The next step of one that is queued or made is not before this.
    due_at       BIGINT,
    -- It is given up then. Of one that is building this is the lease, which its server renews.
    until        BIGINT,
    queued_at    BIGINT,
    -- The image, once it is made.
    digest       TEXT,
    size_bytes   BIGINT,
    -- Whether its machine has removed what the build left there.
    forgotten    BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT
);
CREATE UNIQUE INDEX builds_by_secret ON builds (secret);
-- A resource has one build at a time.
CREATE UNIQUE INDEX builds_open ON builds (resource_id) WHERE ended_at IS NULL;
CREATE INDEX builds_of_workspace ON builds (workspace_id) WHERE ended_at IS NULL;
CREATE INDEX builds_of_machine ON builds (machine, state) WHERE ended_at IS NULL;
CREATE INDEX builds_until ON builds (until) WHERE ended_at IS NULL;
CREATE INDEX builds_left ON builds (machine) WHERE ended_at IS NOT NULL AND forgotten = 0;
CREATE INDEX builds_ended ON builds (ended_at) WHERE ended_at IS NOT NULL;
