-- Lives that nobody owns are looked for every hour, and there are few among all of them.
CREATE INDEX usage_lives_unowned ON usage_lives (id) WHERE account_id IS NULL;
