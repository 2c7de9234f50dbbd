"""What the tests of the Python client share."""

import asyncio
import importlib
import itertools
import json
import os
from typing import Any

from blaxel.core.client import client
from blaxel.core.client.errors import UnexpectedStatus

_numbers = itertools.count(1)

IMAGE = "blaxel/base-image:latest"


def fresh(prefix: str) -> str:
    """A name that no other test uses."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def call(operation: str, **arguments: Any) -> Any:
    """Calls `group.operation` of the generated client; answers what it makes of the response with status 200."""
    response = _detailed(operation).sync_detailed(client=client, **arguments)
    assert response.status_code == 200, response.content
    return response.parsed


def call_async(operation: str, **arguments: Any) -> Any:
    """As `call`, with the client's asynchronous half."""
    response = asyncio.run(_detailed(operation).asyncio_detailed(client=client, **arguments))
    assert response.status_code == 200, response.content
    return response.parsed


def status(operation: str, **arguments: Any) -> int:
    """The status of a call that is refused. The client raises on those that it does not expect, or makes nothing of them."""
    try:
        response = _detailed(operation).sync_detailed(client=client, **arguments)
    except UnexpectedStatus as error:
        return error.status_code
    body = json.loads(response.content)
    assert body["code"] == response.status_code and body["error"] and body["message"], body
    return int(response.status_code)


def _detailed(operation: str) -> Any:
    return importlib.import_module(f"blaxel.core.client.api.{operation}")
