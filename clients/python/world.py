"""A stand-in for the internet in tests of outgoing requests: a name server that knows *.example.test, and a TLS server at those
names that reports what it was asked and serves files."""

import json
import os
import socket
import ssl
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# An address of the machine: loopback in the sandbox is the sandbox's own.
ADDRESS = urlsplit(os.environ["BL_RUN_URL"]).hostname or ""
CERTIFICATES = os.environ["HOLM_CERTIFICATES"]


def _answer(question: bytes) -> bytes:
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += question[at] + 1
    kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
    known = ".".join(labels).lower().endswith(".example.test")
    has_address = known and kind == 1
    flags = b"\x81\x80" if known else b"\x81\x83"
    head = question[:2] + flags + b"\0\1" + struct.pack("!H", has_address) + b"\0\0\0\0"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(ADDRESS)
    return head + question[12 : at + 5] + (record if has_address else b"")


def _serve_names() -> socket.socket:
    host, port = os.environ["HOLM_NAMES"].split(":")
    server = socket.socket(type=socket.SOCK_DGRAM)
    server.bind((host, int(port)))

    def serve() -> None:
        while True:
            try:
                question, sender = server.recvfrom(1500)
            except OSError:
                return
            server.sendto(_answer(question), sender)

    threading.Thread(target=serve, daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _tell(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        path = urlsplit(self.path).path
        files = self.server.files  # type: ignore[attr-defined]
        self.server.seen.append((self.headers["host"], self.path, dict(self.headers)))  # type: ignore[attr-defined]
        told = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        content = json.dumps(told).encode() if not files else files.get(path)
        if path.startswith("/tell"):
            content = json.dumps(told).encode()
        self.send_response(404 if content is None else 200)
        self.send_header("content-length", str(len(content or b"")))
        self.send_header("content-type", "text/html" if path.endswith("/") else "application/octet-stream")
        self.end_headers()
        self.wfile.write(content or b"")

    do_GET = do_POST = do_PUT = _tell  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class World:
    """Serves `files` by path, and at /tell what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.names = _serve_names()
        self.server = ThreadingHTTPServer((ADDRESS, 0), _Handler)
        self.server.files, self.server.seen = self.files, []  # type: ignore[attr-defined]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{CERTIFICATES}/by-authority.pem", f"{CERTIFICATES}/by-authority.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def seen(self) -> list[tuple[str, str, dict[str, str]]]:
        return self.server.seen  # type: ignore[attr-defined]

    def url(self, name: str, path: str = "/tell") -> str:
        return f"https://{name}.example.test:{self.server.server_port}{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.names.close()
