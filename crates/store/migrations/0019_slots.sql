-- Tasks of jobs and calls to workloads have slots of their own, so each of them is looked for by itself.
CREATE INDEX executions_due_tasks ON executions (ready_at) WHERE ready_at IS NOT NULL AND kind = 'job';
CREATE INDEX executions_due_calls ON executions (ready_at) WHERE ready_at IS NOT NULL AND kind <> 'job';
