-- Only for SQLite. What a class used in each hour of a packed day, over all of its series: 24 numbers. Days that were packed before this step
-- have none; their hours are added up instead. The columns are in this order because who reads the first ones is spared the
-- last. There is no default, so that a server of an earlier release cannot pack a day anew and leave numbers that are wrong.
CREATE TABLE usage_days_with_hour_totals (
    class_id    BIGINT NOT NULL,
    day         BIGINT NOT NULL,
    total       TEXT NOT NULL,
    hour_totals TEXT NOT NULL,
    sums        TEXT NOT NULL,
    hours       TEXT NOT NULL,
    PRIMARY KEY (class_id, day)
);
INSERT INTO usage_days_with_hour_totals (class_id, day, total, hour_totals, sums, hours)
    SELECT class_id, day, total, '', sums, hours FROM usage_days;
DROP TABLE usage_days;
ALTER TABLE usage_days_with_hour_totals RENAME TO usage_days;
