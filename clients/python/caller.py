"""An agent that does what it is asked with the published client, with the identity that the platform gives it."""

import importlib
import json
import os
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blaxel.core import SyncSandboxInstance, bl_agent, settings
from blaxel.core.client.client import client
from blaxel.core.client.errors import UnexpectedStatus

# As docs/clients.md says. The client finds out by itself who it is.
type(settings).base_url = os.environ["BL_API_URL"]
type(settings).run_url = os.environ["BL_RUN_URL"]
settings.auth.base_url = os.environ["BL_API_URL"]
client.with_base_url(os.environ["BL_API_URL"])


def environment():
    return {name: value for name, value in os.environ.items() if name.startswith("BL_")}


def sandboxes():
    return [box.metadata.name for box in SyncSandboxInstance.list()]


def sandbox(name):
    box = SyncSandboxInstance.create({"name": name, "region": "local", "memory": 512})
    box.fs.write("/tmp/note", "from an agent")
    return box.fs.read("/tmp/note")


def command(name, text):
    box = SyncSandboxInstance.get(name)
    return box.process.exec({"command": text, "wait_for_completion": True}).stdout


def agent(name, sent):
    return json.loads(bl_agent(name).run(sent))


def status(operation, **arguments):
    """Makes a call of the generated client, and returns its status."""
    try:
        call = importlib.import_module(f"blaxel.core.client.api.{operation}").sync_detailed
        return int(call(client=client, **arguments).status_code)
    except UnexpectedStatus as error:
        return error.status_code


def reach(path):
    """Sends a request with the client's own headers to another address of the server, and returns its status."""
    answer = client.get_httpx_client().post(os.environ["BL_RUN_URL"] + path, headers=settings.headers)
    return answer.status_code


ACTS = {act.__name__: act for act in (environment, sandboxes, sandbox, command, agent, status, reach)}


class Caller(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            done = {"value": ACTS[asked.pop("act")](**asked)}
        except Exception:
            done = {"error": traceback.format_exc()}
        body = json.dumps(done).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Caller).serve_forever()
