-- Which history of the database revisions were last given out in; see the module `feed`. SQLite has but one.
ALTER TABLE feed_origin ADD COLUMN history TEXT;
