"""Answers each request with the request as JSON, and echoes WebSocket messages. Runs inside sandboxes in tests."""

import base64
import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo_messages()
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": sent.decode(),
        }
        body = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer

    def echo_messages(self):
        key = self.headers["Sec-WebSocket-Key"] + WEBSOCKET
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            # Messages of tests are short: their length is in the head.
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(text)]) + text)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Echo).serve_forever()
