#!/usr/bin/env python3
"""Makes sandbox.json, the operations that tests/guest/contract.rs asks for, from the interface's OpenAPI file.

Only paths and their methods are kept. Usage: digest.py OPENAPI.json > sandbox.json
"""
import json
import sys

METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}

paths = json.load(open(sys.argv[1]))["paths"]
json.dump({path: sorted(METHODS & set(item)) for path, item in paths.items()}, sys.stdout, indent=1, sort_keys=True)
print()
