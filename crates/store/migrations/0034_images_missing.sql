-- Machines that do not have the image of an execution. Others may.
CREATE TABLE images_missing (
    execution_id TEXT NOT NULL REFERENCES executions (id) ON DELETE CASCADE DEFERRABLE,
    machine      TEXT NOT NULL,
    PRIMARY KEY (execution_id, machine)
);
