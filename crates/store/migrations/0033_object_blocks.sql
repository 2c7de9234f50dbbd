-- How many whole blocks of 4096 bytes the wishes and states of objects take, so that one workspace cannot fill the disk.
-- Those of a count are in any of the rows over which it is spread.
ALTER TABLE resource_counts ADD COLUMN blocks BIGINT NOT NULL DEFAULT 0;
UPDATE resource_counts SET blocks = (
    SELECT CAST(COALESCE(SUM((OCTET_LENGTH(wish) + OCTET_LENGTH(state)) / 4096), 0) AS BIGINT) FROM resources
    WHERE resources.workspace_id = resource_counts.workspace_id AND resources.kind = resource_counts.kind
        AND resources.status = resource_counts.status)
WHERE shard = (
    SELECT MIN(shard) FROM resource_counts AS others
    WHERE others.workspace_id = resource_counts.workspace_id AND others.kind = resource_counts.kind
        AND others.status = resource_counts.status);
