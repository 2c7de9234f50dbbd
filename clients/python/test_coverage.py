"""Checks that nothing which the client can call was forgotten in the server."""

import json
import os
import re
import urllib.request
from pathlib import Path

from blaxel.core.client import api


def anonymous(path):
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_every_call_of_the_client_is_served():
    with urllib.request.urlopen(f"{os.environ['BL_API_URL']}/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    served = {(method, anonymous(path)) for path, item in paths.items() for method in item}
    missing = set()
    for module in Path(api.__path__[0]).glob("*/[a-z]*.py"):
        text = module.read_text()
        method = re.search(r'"method": "(\w+)"', text)[1]
        path = re.search(r'"url": "([^"]+)"', text)[1]
        if (method, anonymous(path)) not in served:
            missing.add(module.stem)
    assert not missing
