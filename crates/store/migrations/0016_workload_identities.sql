-- Service accounts that the server makes for agents, MCP servers and applications. People do not see them.
ALTER TABLE service_accounts ADD COLUMN workload_id TEXT;
