#!/usr/bin/env python3
"""Makes control-plane.json, the structure that tests/openapi.rs compares ours with, from the interface's OpenAPI file.

Only structure is kept: operations, parameters, fields, types, enums, required marks and scopes. Texts are left out.
Usage: digest.py OPENAPI.json > control-plane.json
"""
import json
import sys

TEXTS = {"description", "summary", "example", "examples", "title", "externalDocs", "tags", "info", "x-speakeasy-name"}


def strip(value, names_are_free=False):
    if isinstance(value, list):
        return [strip(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: strip(item, name in ("properties", "schemas", "parameters", "paths")) for name, item in value.items()
            if names_are_free or name not in TEXTS}
    return kept


document = strip(json.load(open(sys.argv[1])))
responses = ("200", "202", "204")
for item in document["paths"].values():
    for operation in item.values():
        if isinstance(operation, dict) and "responses" in operation:
            operation["responses"] = {code: answer for code, answer in operation["responses"].items() if code in responses}
json.dump(document, sys.stdout, indent=1, sort_keys=True)
print()
