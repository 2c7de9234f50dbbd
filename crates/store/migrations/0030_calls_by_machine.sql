-- The machine whose server has to make a call: the one that runs the workload. Anybody may, where there is none.
ALTER TABLE executions ADD COLUMN machine TEXT;
