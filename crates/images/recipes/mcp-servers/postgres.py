#!/opt/mcp-servers/bin/python
"""An MCP server that reads a PostgreSQL database. DATABASE_URL says which one, and is never repeated."""

import json
import os

import psycopg
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from psycopg.rows import dict_row

CONNECT_S = 10
STATEMENT_MS = 30_000
ROWS_MAX = 1000

TABLES = """
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_schema, table_name
"""

server = MCPServer("postgres")


def answer(sql: str) -> str:
    """The rows of one statement, in a read-only transaction of its own."""
    options = f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_MS}"
    try:
        connection = psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=CONNECT_S, options=options)
    except psycopg.Error as error:
        # Its text names the host and the user of the connection.
        raise ToolError(f"the database cannot be reached ({type(error).__name__})") from None
    with connection, connection.cursor(row_factory=dict_row) as cursor:
        connection.read_only = True
        try:
            # What is prepared is one statement: none that follows could end the transaction.
            cursor.execute(sql, prepare=True)
        except psycopg.Error as error:
            raise ToolError(error.diag.message_primary or type(error).__name__) from None
        if cursor.description is None:
            return json.dumps({"rows": []})
        rows = cursor.fetchmany(ROWS_MAX + 1)
        connection.rollback()
    told = {"rows": rows[:ROWS_MAX]}
    if len(rows) > ROWS_MAX:
        told["more"] = f"only the first {ROWS_MAX} rows are here"
    return json.dumps(told, default=str)


@server.tool()
def query(sql: str) -> str:
    """Runs one SQL statement that changes nothing, and answers its rows as JSON."""
    return answer(sql)


@server.tool()
def list_tables() -> str:
    """Lists the tables and views of the database as JSON."""
    return answer(TABLES)


server.run()
