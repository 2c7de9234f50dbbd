-- Logs of other workloads than jobs: replicas of deployments, and builds. What was printed before is of jobs.
-- In rows of other kinds, `job` is the name of the workload and `execution_id` the instance or the build that printed;
-- `execution` is empty.
ALTER TABLE log_chunks ADD COLUMN kind TEXT NOT NULL DEFAULT 'job';
CREATE INDEX log_chunks_of_workload ON log_chunks (workspace_id, kind, job, last_ns);
CREATE INDEX log_chunks_of_one_execution ON log_chunks (workspace_id, kind, job, execution, last_ns);
DROP INDEX log_chunks_of_job;
DROP INDEX log_chunks_of_execution;
