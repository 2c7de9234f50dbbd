-- Each execution of a job looks for the identity of its job.
CREATE INDEX service_accounts_by_workload ON service_accounts (workload_id) WHERE workload_id IS NOT NULL;
