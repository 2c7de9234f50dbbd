"""The published client inside an agent, with only the variables that the server gives it."""

import json
import os
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
from blaxel.core import SyncSandboxInstance, bl_agent, settings
from blaxel.core.client.client import client
from packaging.requirements import Requirement
from support import build, call, deployed, fresh, lines, packed

DOCKERFILE = 'FROM holm/base\nCOPY . /srv\nENV PYTHONPATH=/srv/packages\nCMD ["python3", "/srv/caller.py"]\n'


def installed(requirement, found):
    """Collects the files of a package and of all that it needs, by their paths among the packages."""
    wanted = Requirement(requirement)
    if (wanted.name, *sorted(wanted.extras)) in found:
        return
    package = distribution(wanted.name)
    found[wanted.name, *sorted(wanted.extras)] = {
        f"packages/{file}": file.locate().read_bytes()
        for file in package.files
        if file.parts[0] != ".." and "__pycache__" not in file.parts
    }
    for needed in map(Requirement, package.requires or []):
        if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in wanted.extras | {""}):
            installed(str(needed).split(";")[0], found)


def remove(name):
    gone = client.get_httpx_client().delete(f"/agents/{name}", headers=settings.headers)
    assert gone.status_code in (200, 404), gone.text


@pytest.fixture(scope="module")
def caller():
    """Deploys an agent that runs `caller.py`, as `bl deploy` deploys a folder."""
    name, found = fresh("caller"), {}
    installed("blaxel", found)
    files = {path: content for package in found.values() for path, content in package.items()}
    files |= {"Dockerfile": DOCKERFILE, "caller.py": Path(__file__).with_name("caller.py").read_text()}
    wish = {"metadata": {"name": name}, "spec": {"runtime": {"memory": 512, "maxScale": 1}}}
    try:
        seen = build("agent", wish, packed(files, "tar.gz"), "tar.gz")
        assert seen[-1] == "DEPLOYED", "\n".join(lines("agents", name))
        yield name
    finally:
        remove(name)


def ask(caller, act, **more):
    done = json.loads(bl_agent(caller).run({"act": act} | more))
    assert "error" not in done, done["error"]
    return done["value"]


def test_it_finds_who_it_is_and_where_the_server_is(caller):
    found = ask(caller, "environment")
    assert found["BL_API_URL"] == os.environ["BL_API_URL"]
    assert (found["BL_TYPE"], found["BL_NAME"], found["BL_WORKSPACE"]) == ("agent", caller, "main")
    assert found["BL_CLIENT_CREDENTIALS"] and "BL_API_KEY" not in found


def test_it_makes_sandboxes_and_works_in_them(caller, boxes):
    boxes += [fresh("mine"), fresh("theirs")]
    assert ask(caller, "sandbox", name=boxes[0]) == "from an agent"
    SyncSandboxInstance.create({"name": boxes[1], "region": "local", "memory": 512})
    assert set(boxes) <= set(ask(caller, "sandboxes"))
    # Whoever created them, they are in one workspace.
    assert SyncSandboxInstance.get(boxes[0]).fs.read("/tmp/note") == "from an agent"
    assert ask(caller, "command", name=boxes[1], text="echo inside").strip() == "inside"


def test_it_calls_other_agents(caller, served):
    name = fresh("agent")
    wish = {"metadata": {"name": name}, "spec": {"runtime": {"image": served, "memory": 256}}}
    call("agents.create_agent", body=wish)
    try:
        deployed("agent", name)
        answer = ask(caller, "agent", name=name, sent={"inputs": "from an agent"})
        assert json.loads(answer["body"]) == {"inputs": "from an agent"}
    finally:
        remove(name)


def test_it_may_do_what_a_member_may_and_nothing_else(caller):
    assert ask(caller, "status", operation="agents.list_agents") == 200
    policy = {"metadata": {"name": fresh("denied")}, "spec": {"type": "location", "locations": []}}
    for operation, arguments in [
        ("policies.create_policy", {"body": policy}),
        ("workspaces.update_workspace", {"workspace_name": "main", "body": {"displayName": "x"}}),
        ("workspaces.invite_workspace_user", {"body": {"email": "a@example.org"}}),
    ]:
        assert ask(caller, "status", operation=operation, **arguments) == 403, operation
    assert ask(caller, "reach", path="/elsewhere/agents/any") in (403, 404)


def token(credentials):
    headers, body = {"authorization": f"Basic {credentials}"}, {"grant_type": "client_credentials"}
    return httpx.post(f"{os.environ['BL_API_URL']}/oauth/token", headers=headers, json=body).status_code


def test_its_credentials_end_with_it(served):
    name = fresh("short")
    call("functions.create_function", body={"metadata": {"name": name}, "spec": {"runtime": {"image": served, "memory": 256}}})
    try:
        deployed("function", name)
        asked = {"name": "variable", "arguments": {"name": "BL_CLIENT_CREDENTIALS"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
        url = f"{os.environ['BL_RUN_URL']}/main/functions/{name}/mcp"
        told = client.get_httpx_client().post(url, json=body, headers=settings.headers).json()
        credentials = told["result"]["content"][0]["text"]
        assert token(credentials) == 200
    finally:
        call("functions.delete_function", function_name=name)
    assert token(credentials) in (400, 401)
