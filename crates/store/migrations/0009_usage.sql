-- What was used. Facts and the owners of lives are kept for ever; all else here follows from them.

-- A life is what facts are about: an instance, something that is stored, a domain. Facts may come before its owner is known.
CREATE TABLE usage_lives (
    subject     TEXT PRIMARY KEY,
    -- What facts name it by. Rises with time, so that facts of one time lie together.
    id          BIGINT NOT NULL UNIQUE,
    -- All of the owner are null until it is known.
    account_id  TEXT,
    workspace   TEXT,
    dimension   TEXT,
    name        TEXT,
    uuid        TEXT,
    -- Whose word says that it goes on. Null: it goes on by itself.
    machine     TEXT,
    -- Where its usage is added to. Null before there is any.
    class_id    BIGINT,
    series_id   BIGINT,
    -- What the facts so far make of it: `off`, `on` or `ended`, and at which level.
    phase       TEXT NOT NULL,
    level       BIGINT NOT NULL,
    -- When it began; null before it did. While it is on, usage up to `through` is in the hours.
    began_at    BIGINT,
    through     BIGINT NOT NULL,
    -- The place of the last fact in the order of facts.
    last_at     BIGINT,
    last_number BIGINT,
    last_kind   BIGINT,
    last_id     TEXT,
    -- The start of the machine that the facts belong to, and what ties its steady clock to the calendar.
    boot        BIGINT NOT NULL,
    anchor_at   BIGINT,
    anchor_mono BIGINT,
    -- When an earlier start of the machine was last known to be up; null without one.
    cut         BIGINT
);
CREATE INDEX usage_lives_on ON usage_lives (account_id, through) WHERE phase = 'on';
CREATE INDEX usage_lives_due ON usage_lives (through, subject) WHERE phase = 'on';
CREATE INDEX usage_lives_of_series ON usage_lives (class_id, series_id, through);

CREATE TABLE usage_facts (
    id      TEXT PRIMARY KEY,
    life_id BIGINT NOT NULL,
    number  BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    kind    BIGINT NOT NULL,
    amount  BIGINT NOT NULL,
    boot    BIGINT NOT NULL,
    mono    BIGINT NOT NULL
);
CREATE INDEX usage_facts_of_life ON usage_facts (life_id);

-- When a machine was last known to be up, for each of its starts; boot 0 is any.
CREATE TABLE usage_proofs (
    machine TEXT NOT NULL,
    boot    BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    mono    BIGINT NOT NULL,
    PRIMARY KEY (machine, boot)
);

CREATE TABLE usage_classes (
    id          BIGINT PRIMARY KEY,
    account_id  TEXT NOT NULL,
    workspace   TEXT NOT NULL,
    dimension   TEXT NOT NULL,
    -- Series that it has.
    series      BIGINT NOT NULL,
    UNIQUE (account_id, workspace, dimension)
);

-- Numbered inside their class, so that a packed day is small.
CREATE TABLE usage_series (
    class_id BIGINT NOT NULL,
    id       BIGINT NOT NULL,
    name     TEXT NOT NULL,
    uuid     TEXT NOT NULL,
    PRIMARY KEY (class_id, id),
    UNIQUE (class_id, name, uuid)
);
CREATE INDEX usage_series_by_uuid ON usage_series (class_id, uuid);

-- Usage that is not packed yet: to be added to what is. Hours count from 1970.
CREATE TABLE usage_hours (
    class_id  BIGINT NOT NULL,
    hour      BIGINT NOT NULL,
    series_id BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    PRIMARY KEY (class_id, hour, series_id)
);

-- All series of a class in one day, packed. In this order: who reads the first ones is spared the last.
CREATE TABLE usage_days (
    class_id BIGINT NOT NULL,
    day      BIGINT NOT NULL,
    total    TEXT NOT NULL,
    sums     TEXT NOT NULL,
    hours    TEXT NOT NULL,
    PRIMARY KEY (class_id, day)
);

-- What came late and changed days that had been told before.
CREATE TABLE usage_corrections (
    class_id  BIGINT NOT NULL,
    day       BIGINT NOT NULL,
    series_id BIGINT NOT NULL,
    noted_at  BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    PRIMARY KEY (class_id, day, series_id, noted_at)
);
