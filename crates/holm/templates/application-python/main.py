"""An application: answers every request with a page."""

import html
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Application(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        page = f"<!doctype html><title>{{name}}</title><h1>{{name}}</h1><p>{html.escape(self.path)}"
        data = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    place = (os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8080")))
    ThreadingHTTPServer(place, Application).serve_forever()
