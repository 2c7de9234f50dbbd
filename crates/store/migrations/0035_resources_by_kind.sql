-- Background work reads all objects of a kind. Without this it would read those of all other kinds as well.
CREATE INDEX resources_by_kind ON resources (kind, id);
