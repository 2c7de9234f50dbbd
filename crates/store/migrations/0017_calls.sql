-- An execution may also be one call to a workload that nobody waits for; its answer is kept for whoever is told of it.
ALTER TABLE executions ADD COLUMN kind TEXT NOT NULL DEFAULT 'job';
ALTER TABLE executions ADD COLUMN answer TEXT;
