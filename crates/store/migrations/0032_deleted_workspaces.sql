-- Since when a workspace is deleted for everybody. A large one is deleted in steps: its row goes last, and marks it until then.
ALTER TABLE workspaces ADD COLUMN deleted_at BIGINT;
