"""An MCP server with one tool, over streamable HTTP at /mcp."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = [
    {
        "name": "greet",
        "description": "Greets somebody by name",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    }
]


def call(tool, arguments):
    """Replace this with what your tools do."""
    if tool == "greet":
        return f"Hello, {arguments['name']}!"
    raise ValueError(f"there is no tool {tool}")


def result(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-03-26"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": os.environ.get("BL_NAME", "tools"), "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = call(params["name"], params.get("arguments", {})), False
        except Exception as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    if method == "ping":
        return {}
    return None


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        """Reads the body, which comes in chunks if its length was not known when it was sent."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return body

    def do_POST(self):
        body = self.body()
        try:
            message = json.loads(body)
            number, method = message.get("id"), message["method"]
            params = message.get("params") or {}
        except (ValueError, KeyError, AttributeError):
            self.reply(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no request"}})
            return
        if number is None:
            self.reply(202, None)
            return
        answer = {"jsonrpc": "2.0", "id": number}
        found = result(method, params)
        if found is None:
            answer["error"] = {"code": -32601, "message": f"there is no method {method}"}
        else:
            answer["result"] = found
        self.reply(200, answer)

    def do_GET(self):
        self.reply(405, None)

    def reply(self, status, answer):
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    place = (os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "1338")))
    ThreadingHTTPServer(place, Server).serve_forever()
