"""An agent: answers `{"inputs": "…"}` with text, piece by piece."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(inputs, thread):
    """Replace this with what your agent does. Each piece is sent as soon as it is there."""
    yield "You said: "
    for word in str(inputs).split():
        yield word + " "
    yield "\n"


class Agent(BaseHTTPRequestHandler):
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
            inputs = json.loads(body or b"{}").get("inputs", "")
        except (ValueError, AttributeError):
            self.send_error(400, "the body must be a JSON object")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in answer(inputs, self.headers.get("X-Blaxel-Thread-Id")):
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    place = (os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "1338")))
    ThreadingHTTPServer(place, Agent).serve_forever()
