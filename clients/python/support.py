"""What the tests of the Python client share."""

import asyncio
import importlib
import io
import itertools
import json
import os
import tarfile
import time
import zipfile
from typing import Any, Callable

import httpx
from blaxel.core import settings
from blaxel.core.client.client import client
from blaxel.core.client.errors import UnexpectedStatus

_numbers = itertools.count(1)

IMAGE = "blaxel/base-image:latest"


def fresh(prefix: str) -> str:
    """Returns a name that no other test uses."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def call(operation: str, **arguments: Any) -> Any:
    """Calls `group.operation` of the generated client, which must get status 200; returns the parsed response."""
    response = _detailed(operation).sync_detailed(client=client, **arguments)
    assert response.status_code == 200, response.content
    return response.parsed


def call_async(operation: str, **arguments: Any) -> Any:
    """Does the same as `call`, with the client's asynchronous functions."""
    response = asyncio.run(_detailed(operation).asyncio_detailed(client=client, **arguments))
    assert response.status_code == 200, response.content
    return response.parsed


def status(operation: str, **arguments: Any) -> int:
    """Returns the status of a call that is refused. The client raises an error for unexpected statuses, or returns nothing."""
    try:
        response = _detailed(operation).sync_detailed(client=client, **arguments)
    except UnexpectedStatus as error:
        return error.status_code
    body = json.loads(response.content)
    assert body["code"] == response.status_code and body["error"] and body["message"], body
    return int(response.status_code)


def _detailed(operation: str) -> Any:
    return importlib.import_module(f"blaxel.core.client.api.{operation}")


def until(what: str, probe: Callable[[], Any], seconds: float = 60) -> Any:
    """Calls `probe` until it returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


def deployed(kind: str, name: str) -> Any:
    """Returns the deployment, once it serves what was last deployed."""

    def look() -> Any:
        read = call(f"{kind}s.get_{kind}", **{f"{kind}_name": name})
        assert read.status != "FAILED", [event.to_dict() for event in read.events or []]
        return read.status == "DEPLOYED" and read

    # The first deployment of an image waits until its layers are unpacked.
    return until(f"{kind} {name} is deployed", look, 150)


def send(method: str, path: str, **more: Any) -> httpx.Response:
    """Calls the management interface with options that the generated client lacks, such as `upload=true`."""
    answer = client.get_httpx_client().request(method, path, headers=settings.headers, **more)
    assert answer.status_code == 200, answer.text
    return answer


def lines(plural: str, name: str, **more: Any) -> list[str]:
    """Returns what a workload has printed, oldest first. The client has no helper for this."""
    query = {"resourceType": plural, "workloadIds": name, "limit": 1000} | more
    logs = send("GET", "/observability/logs", params=query).json()[name]["logs"]
    return [line["message"] for line in logs][::-1]


def packed(files: dict[str, str | bytes], form: str = "zip") -> bytes:
    """Returns an archive of these files: a zip, a `tar`, or a `tar.gz`."""
    buffer = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w:gz" if form == "tar.gz" else "w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return buffer.getvalue()


def upload(answer: httpx.Response, sources: bytes, form: str = "zip") -> None:
    """Uploads sources to the address in an answer to `upload=true`, and checks that it accepts only one upload."""
    address = answer.headers["x-blaxel-upload-url"]
    kind = {"content-type": "application/zip" if form == "zip" else "application/x-tar"}
    assert httpx.put(address, content=sources, headers=kind, timeout=60).status_code == 200
    assert httpx.put(address, content=sources, headers=kind, timeout=60).status_code != 200


def build(kind: str, body: dict[str, Any], sources: bytes, form: str = "zip") -> list[str]:
    """Creates or changes a deployment from sources, and returns the statuses that a poller sees."""
    name, plural = body["metadata"]["name"], f"{kind}s"
    try:
        answer = send("PUT", f"/{plural}/{name}", params={"upload": "true"}, json=body)
    except AssertionError:
        answer = send("POST", f"/{plural}", params={"upload": "true"}, json=body)
    upload(answer, sources, form)
    seen: list[str] = []

    def look() -> bool:
        status = str(call(f"{plural}.get_{kind}", **{f"{kind}_name": name}).status)
        if status not in seen[-1:]:
            seen.append(status)
        return status == "FAILED" or (status == "DEPLOYED" and "BUILDING" in seen)

    until(f"{name} is built", look, 180)
    return seen
