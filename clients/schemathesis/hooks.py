"""Skips invalid queries that the interface accepts on purpose."""

import schemathesis

# The limit of most lists; a larger one counts as this.
LIMIT_MAX = 100


@schemathesis.hook
def filter_case(context, case):
    query = case.query or {}
    try:
        clamped = int(query.get("limit", 0)) > LIMIT_MAX
    except (TypeError, ValueError):
        clamped = False
    # Published clients send empty values for what they do not ask for.
    empty = any(value in ("", [], {}, None) for value in query.values())
    return not clamped and not empty
