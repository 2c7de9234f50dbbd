"""Agents, MCP servers and applications: deployed from images and from sources, called, streamed from, rolled back."""

import asyncio
import hashlib
import hmac
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from blaxel.core import bl_agent, bl_tools, settings, verify_webhook_signature
from blaxel.core.application import ApplicationInstance, SyncApplicationInstance
from blaxel.core.client.client import client
from support import build, call, call_async, deployed, fresh, lines, packed, status, until

KINDS = ["agent", "function", "application"]
HALVES = pytest.mark.parametrize("half", [call, call_async], ids=["sync", "async"])


def spec(kind, image=None, colour="blue", **more):
    envs = [{"name": "COLOUR", "value": colour}] + more.pop("envs", [])
    program = {"memory": 256, "envs": envs} | ({"image": image} if image else {})
    return (program if kind == "application" else {"runtime": program}) | more


def body(kind, name, *arguments, **more):
    return {"metadata": {"name": name}, "spec": spec(kind, *arguments, **more)}


def change(kind, name, body, half=call):
    return half(f"{kind}s.update_{kind}", body=body, **{f"{kind}_name": name})


def read(kind, name, half=call):
    return half(f"{kind}s.get_{kind}", **{f"{kind}_name": name})


def revisions(kind, name):
    return call(f"{kind}s.list_{kind}_revisions", **{f"{kind}_name": name})


def ask(kind, name, sent="hi", path="", **headers):
    """Returns what the program of a deployment says it was asked."""
    url = read(kind, name).metadata.url + path
    answer = client.get_httpx_client().post(url, content=sent, headers=settings.headers | headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def deploy(served):
    """Deploys the image of `served.py`, and removes the deployment after the test."""
    made = []

    def make(kind, colour="blue", half=call, **more):
        name = fresh(kind)
        half(f"{kind}s.create_{kind}", body=body(kind, name, served, colour, **more))
        made.append((kind, name))
        deployed(kind, name)
        return name

    make.remove, make.image = made.append, served
    yield make
    for kind, name in made:
        gone = client.get_httpx_client().delete(f"/{kind}s/{name}", headers=settings.headers)
        assert gone.status_code in (200, 404), gone.text


@HALVES
@pytest.mark.parametrize("kind", KINDS)
def test_a_deployment_is_made_called_changed_and_deleted(deploy, served, kind, half):
    name = deploy(kind, half=half)
    first = read(kind, name, half)
    assert first.metadata.url and first.status == "DEPLOYED"
    assert ask(kind, name)["colour"] == "blue"
    change(kind, name, body(kind, name, served, "red"), half)
    until("the change serves", lambda: ask(kind, name)["colour"] == "red")
    deployed(kind, name)
    assert len(revisions(kind, name)) == 2
    half(f"{kind}s.delete_{kind}", **{f"{kind}_name": name})
    assert status(f"{kind}s.get_{kind}", **{f"{kind}_name": name}) == 404
    gone = client.get_httpx_client().post(first.metadata.url, headers=settings.headers)
    assert gone.status_code == 404


def test_the_helper_of_agents_asks_them(deploy):
    name = deploy("agent")
    answer = json.loads(bl_agent(name).run({"inputs": "hi"}, headers={"X-Blaxel-Thread-Id": "t1"}, params={"part": "2"}))
    assert (json.loads(answer["body"]), answer["path"], answer["method"]) == ({"inputs": "hi"}, "/?part=2", "POST")
    assert answer["headers"]["x-blaxel-thread-id"] == "t1"
    # The key that let the caller in is not passed on.
    assert os.environ["BL_API_KEY"] not in json.dumps(answer["headers"])
    assert json.loads(asyncio.run(bl_agent(name).arun("plain")))["body"] == "plain"
    with pytest.raises(Exception, match="status code 404"):
        bl_agent(fresh("nobody")).run("hi")


def test_bodies_of_any_size_come_through(deploy):
    name = deploy("agent")
    sent = os.urandom(8 << 20)
    assert ask("agent", name, sent)["sha256"] == hashlib.sha256(sent).hexdigest()


@pytest.mark.parametrize("path, first", [("/lines", "line 0\n"), ("/events", "data: 0\n\n")])
def test_an_answer_arrives_while_it_is_made(deploy, path, first):
    url = read("agent", deploy("agent")).metadata.url + path
    with client.get_httpx_client().stream("POST", url, headers=settings.headers) as answer:
        pieces = [(time.monotonic(), piece) for piece in answer.iter_text()]
    assert pieces[0][1] == first and len("".join(text for _, text in pieces)) == 4 * len(first)
    assert pieces[-1][0] - pieces[0][0] > 0.5

    async def arrivals():
        async with client.get_async_httpx_client().stream("POST", url, headers=settings.headers) as answer:
            return [(time.monotonic(), piece) async for piece in answer.aiter_text()]

    pieces = asyncio.run(arrivals())
    assert pieces[0][1] == first and pieces[-1][0] - pieces[0][0] > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_revision_before_serves_again(deploy, served, kind):
    name = deploy(kind, "red")
    first = read(kind, name).spec.revision.active
    change(kind, name, body(kind, name, served, "green"))
    until("the new revision serves", lambda: ask(kind, name)["colour"] == "green")
    back = deployed(kind, name)
    assert back.spec.revision.active != first
    back.spec.revision.active = first
    change(kind, name, back)
    until("the old revision serves", lambda: ask(kind, name)["colour"] == "red")
    until("it says so", lambda: read(kind, name).spec.revision.active == first)


def test_a_canary_gets_its_share_and_callers_stay_with_it(deploy, served):
    name = deploy("agent", "red")
    first = read("agent", name).spec.revision.active
    change("agent", name, body("agent", name, served, "green"))
    until("the new revision serves", lambda: ask("agent", name)["colour"] == "green")
    now = deployed("agent", name)
    second = now.spec.revision.active
    split = now.to_dict()
    split["spec"]["revision"] = {"active": first, "canary": second, "canaryPercent": 50, "stickySessionTtl": 60}
    change("agent", name, split)
    url = now.metadata.url

    def colours(caller, count):
        answers = [caller.post(url, headers=settings.headers) for _ in range(count)]
        return {answer.json()["colour"] for answer in answers}

    def strangers():
        return colours(httpx, 8)

    until("both serve", lambda: strangers() == {"red", "green"})
    # The cookie of the first answer keeps a caller where it was, and so does a conversation.
    for _ in range(4):
        with httpx.Client() as caller:
            assert len(colours(caller, 6)) == 1
    for thread in ("a", "b", "c"):
        asked = [ask("agent", name, **{"X-Blaxel-Thread-Id": thread})["colour"] for _ in range(4)]
        assert len(set(asked)) == 1


def test_who_may_ask_is_what_the_wish_says(deploy, served):
    name = deploy("agent")
    url = read("agent", name).metadata.url
    assert httpx.post(url).status_code == 401
    assert httpx.post(url, headers={"authorization": "Bearer hk_wrong"}).status_code == 401
    change("agent", name, body("agent", name, served, public=True))
    until("it is public", lambda: httpx.post(url).status_code == 200)
    change("agent", name, body("agent", name, served, public=True, enabled=False))
    until("it is off", lambda: httpx.post(url).status_code == 404)
    until("it says so", lambda: read("agent", name).status == "DEACTIVATED")
    with pytest.raises(Exception, match="status code 404"):
        bl_agent(name).run("hi")
    change("agent", name, body("agent", name, served))
    deployed("agent", name)
    assert httpx.post(url).status_code == 401
    assert json.loads(bl_agent(name).run("hi"))["body"] == "hi"


def test_a_deployment_may_name_policies(deploy):
    policy, elsewhere = fresh("policy"), fresh("policy")
    for policy_name, place in [(policy, {"type": "location", "name": "local"}), (elsewhere, {"type": "continent", "name": "eu"})]:
        places = {"type": "location", "resourceTypes": ["agent"], "locations": [place]}
        call("policies.create_policy", body={"metadata": {"name": policy_name}, "spec": places})
    name = deploy("agent", policies=[policy])
    assert read("agent", name).spec.policies == [policy]
    with pytest.raises(AssertionError, match="the region `local` is not among the locations"):
        deploy("agent", policies=[elsewhere])
    call("agents.delete_agent", agent_name=name)
    for policy_name in (policy, elsewhere):
        call("policies.delete_policy", policy_name=policy_name)


def dockerfile(served, colour):
    """Returns sources whose Dockerfile starts from an image of the workspace."""
    return {"Dockerfile": f"FROM {served}\nCOPY note /srv/note\nRUN test -s /srv/note\nENV BUILT={colour}\n", "note": colour}


@pytest.mark.parametrize("kind, form", [("agent", "zip"), ("function", "tar"), ("application", "tar.gz")])
def test_a_folder_becomes_a_deployment_and_the_next_one_a_revision(deploy, served, kind, form):
    name = fresh("built")
    deploy.remove((kind, name))
    wish = body(kind, name) | {"metadata": {"name": name, "labels": {"x-blaxel-auto-generated": "true"}}}
    assert build(kind, wish, packed(dockerfile(served, "one"), form), form)[-1] == "DEPLOYED"
    assert ask(kind, name)["colour"] == "blue"
    wish["spec"] = spec(kind, colour="red")
    assert build(kind, wish, packed(dockerfile(served, "two"), form), form)[-1] == "DEPLOYED"
    until("the next one serves", lambda: ask(kind, name)["colour"] == "red")
    assert len(revisions(kind, name)) == 2

    failed = build(kind, wish, packed({"Dockerfile": f"FROM {served}\nRUN exit 7\n"}, form), form)
    assert failed[-1] == "FAILED"
    assert ask(kind, name)["colour"] == "red"
    assert any("RUN exit 7" in line for line in lines(f"{kind}s", name))
    call(f"{kind}s.delete_{kind}", **{f"{kind}_name": name})
    repository = {"resource_type": "app" if kind == "application" else kind, "image_name": name}
    assert len(call("images.get_image", **repository).spec["tags"]) == 2
    listed = call("images.list_image_tags", **repository, limit=1)
    assert (len(listed.data), listed.meta.has_more, listed.meta.total) == (1, True, 2)
    rest = call("images.list_image_tags", **repository, cursor=listed.meta.next_cursor, limit=1)
    assert listed.data[0].name < rest.data[0].name and rest.data[0].size > 0
    exact = call("images.list_image_tags", **repository, name=rest.data[0].name)
    assert [tag.name for tag in exact.data] == [rest.data[0].name]
    call("images.delete_image", **repository)


def test_the_helpers_of_applications(deploy, served):
    name = fresh("app")
    deploy.remove(("application", name))
    wish = {"name": name, "image": served, "memory": 256, "region": "local", "envs": [{"name": "COLOUR", "value": "blue"}]}
    app = SyncApplicationInstance.create(wish)
    deployed("application", name)
    assert SyncApplicationInstance.create_if_not_exists(wish).metadata.url == app.metadata.url
    assert name in [each.name for each in SyncApplicationInstance.list()]
    assert httpx.get(app.metadata.url + "/page?a=1").json()["path"] == "/page?a=1"

    async def further():
        mine = await ApplicationInstance.get(name)
        await mine.update({"envs": [{"name": "COLOUR", "value": "red"}]})
        await asyncio.to_thread(until, "the change serves", lambda: httpx.get(app.metadata.url).json()["colour"] == "red")
        assert (await ApplicationInstance.get(name)).spec.image == served
        await mine.delete()

    asyncio.run(further())
    assert httpx.get(app.metadata.url).status_code == 404


def test_a_call_that_nobody_waits_for_is_made(deploy):
    name = deploy("agent")
    assert json.loads(bl_agent(name).run("later", params={"async": "true"})) == {"success": True}
    until("it was made", lambda: "answered 200" in lines("agents", name))


class Receiver(BaseHTTPRequestHandler):
    """Keeps the callbacks that it receives."""

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((sent, dict(self.headers)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = HTTPServer((socket.gethostbyname(socket.gethostname()), 0), Receiver)
    server.got = []
    threading.Thread(target=server.serve_forever).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_trigger_calls_back_with_a_signature_that_the_client_accepts(deploy, receiver):
    word = fresh("word")
    url = f"http://{socket.gethostname()}:{receiver.server_port}/done"
    triggers = [
        {"id": "later", "type": "http-async", "configuration": {"path": f"/{word}", "callbackUrl": url}},
        {"id": "now", "type": "http", "configuration": {"path": f"/{word}-now", "authenticationType": "public"}},
    ]
    name = fresh("agent")
    deploy.remove(("agent", name))
    made = call("agents.create_agent", body=body("agent", name, deploy.image, triggers=triggers))
    deployed("agent", name)
    secret = made.spec.triggers[0].configuration.callback_secret
    assert "*" not in secret
    assert "*" in read("agent", name).spec.triggers[0].configuration.callback_secret

    root = f"{settings.run_url}/{settings.workspace}/{word}"
    assert httpx.post(f"{root}-now", content="now").json()["body"] == "now"
    assert httpx.post(root, content="x").status_code == 401
    assert httpx.post(root, content='{"n": 1}', headers=settings.headers).json() == {"success": True}
    until("it is called back", lambda: receiver.got)
    sent, headers = receiver.got[0]
    headers = httpx.Headers(headers)
    told = json.loads(sent)
    assert (told["status_code"], json.loads(told["response_body"])["body"]) == (200, '{"n": 1}')
    assert told["response_length"] == len(told["response_body"])
    signature, when = headers["X-Blaxel-Signature"], headers["X-Blaxel-Timestamp"]
    assert verify_webhook_signature(sent, signature, secret, when)
    assert not verify_webhook_signature(sent + b" ", signature, secret, when)
    assert signature == "sha256=" + hmac.new(secret.encode(), sent, "sha256").hexdigest()


@pytest.mark.parametrize("answers", ["whole", "events"])
def test_tools_of_an_mcp_server_are_listed_and_called(deploy, answers):
    name = deploy("function", envs=[{"name": "ANSWERS", "value": answers}])

    async def use():
        tools = {tool.name: tool for tool in (await bl_tools([name]).initialize()).get_tools()}
        assert sorted(tools) == ["add", "variable"]
        assert tools["add"].input_schema["required"] == ["a", "b"]
        results = await asyncio.gather(*(tools["add"].coroutine(a=n, b=1) for n in range(8)))
        assert [each.content[0].text for each in results] == [str(n + 1) for n in range(8)]
        told = await tools["variable"].coroutine(name="BL_TYPE")
        assert told.content[0].text == "function"

    asyncio.run(asyncio.wait_for(use(), 60))


def test_tools_are_called_without_a_loop_too(deploy):
    name = deploy("function")

    async def find():
        tools = (await bl_tools([name], timeout_enabled=False).initialize()).get_tools()
        return next(tool for tool in tools if tool.name == "add")

    add = asyncio.run(find())
    assert add.sync_coroutine(a=2, b=3).content[0].text == "5"


def test_what_a_deployment_prints_is_kept(deploy):
    name = deploy("function")
    ask("function", name)
    until("it is kept", lambda: lines("functions", name)[-1:] == ["answered 200"])
    assert lines("functions", name)[0] == "listening on 8080"
    assert lines("functions", name, search="answered") == ["answered 200"]
