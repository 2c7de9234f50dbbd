"""What the tests of models share: the stand-in for providers, and models that lead to it."""

import os
from typing import Any
from urllib.parse import quote

import httpx
from support import fresh, send, until

KEY = os.environ["HOLM_KEY"]
# A connection's provider key.
SECRET = "sk-of-the-provider"
STANDIN = os.environ["HOLM_STANDIN"]
TEXT = "Hello from a stand-in that counts its tokens"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["city", "count"],
    "additionalProperties": False,
}
SAMPLED = {"city": "Paris", "count": 7}
# The dialect of OpenAI, which most providers share, is below `/v1`.
ROOTS = {"anthropic": "", "gemini": "", "cohere": "", "mistral": "/with/usage/v1"}


class Model:
    """A model that leads to the stand-in, which counts and remembers by the name of the model that it was sent."""

    def __init__(self, name: str, asked: str):
        self.name, self.asked = name, asked
        self.url = f"{os.environ['BL_RUN_URL']}/main/models/{name}"

    def served(self) -> dict[str, int]:
        return httpx.get(f"{STANDIN}/standin/served?model={quote(self.asked)}").json()

    def requests(self) -> list[dict[str, Any]]:
        return httpx.get(f"{STANDIN}/standin/requests?model={quote(self.asked)}").json()

    def usage(self) -> dict[str, int]:
        """Returns what the server has counted this month, with the cost in nanodollars."""
        total = send("GET", f"/models/{self.name}/usage").json()["total"]
        names = {"calls": "calls", "estimated": "estimatedCalls", "cost": "costNanodollars"}
        names |= {name: f"{name}Tokens" for name in ("input", "output", "cached", "reasoning")}
        return {ours: total[theirs] for ours, theirs in names.items()}

    def counted(self) -> dict[str, int]:
        """Waits until the server has counted exactly what the stand-in says it has served, to the token."""
        served = self.served()

        def look() -> Any:
            used = self.usage()
            return all(used[each] == served[each] for each in ("input", "output", "cached", "reasoning")) and used

        return until(f"{self.name} has used {served}", look, 20)

    def keeps_keys(self) -> None:
        """Checks that no key of a caller reaches a provider, in any header, and that the provider's own does."""
        for request in self.requests():
            assert KEY not in str(request), request
            assert SECRET in str(request["headers"] + [request["path"]]), request


class Models:
    """Creates models, and removes them at the end."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, kind: str, words: str = "", endpoint: str | None = None, **spec: Any) -> Model:
        name, asked = fresh("model"), fresh("served") + (f"+{words}" if words else "")
        config = {"endpoint": endpoint or STANDIN + ROOTS.get(kind, "/v1")}
        connection = {"integration": kind, "config": config, "secret": {"apiKey": SECRET}}
        self._make("integrations/connections", name, connection)
        runtime = {"type": kind, "model": asked} | spec.pop("runtime", {})
        self._make("models", name, {"integrationConnections": [name], "runtime": runtime} | spec)
        return Model(name, asked)

    def virtual(self, **routing: Any) -> Model:
        name = fresh("virtual")
        self._make("models", name, {"routing": routing})
        return Model(name, name)

    def policy(self, **limit: Any) -> str:
        name = fresh("policy")
        self._make("policies", name, {"type": "maxToken", "maxTokens": limit})
        return name

    def _make(self, collection: str, name: str, spec: dict[str, Any]) -> None:
        send("POST", f"/{collection}", json={"metadata": {"name": name}, "spec": spec})
        self.made.append(f"/{collection}/{name}")

    def remove(self) -> None:
        for path in reversed(self.made):
            send("DELETE", path)
