"""The program that the tests' deployments run: it reports what it was asked, streams, and serves MCP tools. Standard library only."""

import hashlib
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [
    {"name": "add", "description": "Adds two numbers.", "inputSchema": NUMBERS},
    {"name": "variable", "description": "Tells a variable of the environment.",
     "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
]


class Served(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path.endswith("/mcp"):
            return self.mcp(sent)
        if path.endswith("/lines"):
            return self.stream("text/plain", (f"line {n}\n" for n in range(4)))
        if path.endswith("/events"):
            return self.stream("text/event-stream", (f"data: {n}\n\n" for n in range(4)))
        if path.endswith("/fails"):
            return self.whole(500, {"failed": sent.decode()})
        return self.whole(200, {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": sent.decode(errors="replace"),
            "sha256": hashlib.sha256(sent).hexdigest(),
            "colour": os.environ.get("COLOUR", ""),
        })

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def whole(self, status, value):
        print(f"answered {status}", flush=True)
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, content_type, pieces):
        """Sends pieces with pauses in between, to show whether they arrive as they are sent."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n{piece}\r\n".encode())
            self.wfile.flush()
            time.sleep(0.3)
        self.wfile.write(b"0\r\n\r\n")

    def mcp(self, sent):
        if self.command != "POST":
            return self.whole(405, {"error": "POST only"})
        asked = json.loads(sent)
        if "id" not in asked:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        answer = {"jsonrpc": "2.0", "id": asked["id"]} | result(asked["method"], asked.get("params") or {})
        if os.environ.get("ANSWERS") == "events":
            return self.stream("text/event-stream", [f"event: message\ndata: {json.dumps(answer)}\n\n"])
        return self.whole(200, answer)

    def log_message(self, *_):
        pass


def result(method, params):
    """Returns the result of a method in the form of the protocol."""
    if method == "initialize":
        return {"result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": os.environ["BL_NAME"], "version": "1"},
        }}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        if params["name"] == "add":
            return said(str(arguments["a"] + arguments["b"]))
        if params["name"] == "variable":
            return said(os.environ.get(arguments["name"], ""))
        return said(f"there is no tool {params['name']}", is_error=True)
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"there is no method {method}"}}


def said(text, is_error=False):
    return {"result": {"content": [{"type": "text", "text": text}], "isError": is_error}}


print(f"listening on {os.environ['PORT']}", flush=True)
ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Served).serve_forever()
