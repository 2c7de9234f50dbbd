"""Sandboxes that run, with the helpers of the client: the asynchronous ones, and some of the synchronous ones."""

import asyncio
import hashlib
import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
import websockets
from blaxel.core import CodeInterpreter, SandboxAPIError, SandboxInstance, SyncCodeInterpreter, SyncSandboxInstance, bl_tools
from blaxel.core.client.models import ListScheduleExecutionsStatus, ListSchedulesType, SandboxScheduleEntry
from blaxel.core.sandbox.types import ResponseError
from support import call, fresh

ECHO = Path(__file__).parent.parent / "typescript" / "echo.py"
MIB = 1024 * 1024


def soon(seconds=3600):
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


async def until(what, probe, seconds=30):
    """Calls `probe` until it returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (found := await probe()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)
    return found


async def refused(call, status):
    with pytest.raises(ResponseError) as error:
        await call
    assert error.value.response.status_code == status, error.value


async def run(box, command, **more):
    """Runs a command to its end, which must succeed; returns its output."""
    done = await box.process.exec({"command": command, "wait_for_completion": True, **more})
    assert done.exit_code == 0, done.logs
    return done.stdout


async def start_echo(box):
    await box.fs.write("/srv/echo.py", ECHO.read_text())
    await box.process.exec({"name": "echo", "command": "python3 /srv/echo.py 3000", "wait_for_ports": [3000]})


def tried(**settings):
    """Turns a coroutine into a test with a sandbox of its own."""

    def wrap(test):
        async def with_box():
            box = await SandboxInstance.create({"name": fresh("box"), "region": "local", "memory": 1024} | settings)
            try:
                await test(box)
            finally:
                try:
                    await SandboxInstance.delete(box.metadata.name)
                except SandboxAPIError as error:
                    assert error.status_code == 404

        def run_it():
            asyncio.run(with_box())

        run_it.__name__ = test.__name__
        return run_it

    return wrap


@tried(envs=[{"name": "COLOUR", "value": "blue sky"}])
async def test_commands_tell_what_they_wrote_and_how_they_ended(box):
    done = await box.process.exec({"command": "echo out; echo err >&2; exit 7", "wait_for_completion": True})
    assert (done.status, done.exit_code, done.stdout, done.stderr) == ("failed", 7, "out\n", "err\n")
    assert await run(box, 'printf "$COLOUR|$SIZE|$PWD"', env={"SIZE": "5"}, working_dir="/usr") == "blue sky|5|/usr"
    await refused(box.process.exec({"command": "true", "working_dir": "/not/there"}), 422)

    started = await box.process.exec({"name": "sleeper", "command": "sleep 600"})
    assert started.status == "running"
    assert (await box.process.get("sleeper")).pid == started.pid
    assert "sleeper" in [each.name for each in await box.process.list()]
    await refused(box.process.exec({"name": "sleeper", "command": "true"}), 400)
    await box.process.stop("sleeper")
    assert (await box.process.wait("sleeper", interval=50)).status == "stopped"
    await refused(box.process.kill("sleeper"), 404)
    await refused(box.process.exec({"command": "sleep 600", "wait_for_completion": True, "timeout": 1}), 422)


@tried()
async def test_a_wait_ends_with_its_process(box):
    # A client that only looks again after the interval would be too late.
    await box.process.exec({"name": "a task", "command": "sleep 1; echo done; exit 4"})
    done = await box.process.wait("a task", max_wait=30_000, interval=60_000)
    assert (done.status, done.exit_code, done.stdout) == ("failed", 4, "done\n")
    # The sandbox stays awake for those who wait, longer than it otherwise would.
    await box.process.exec({"name": "longer", "command": "sleep 5"})
    assert (await box.process.wait("longer", max_wait=30_000, interval=60_000)).status == "completed"
    await box.process.exec({"name": "endless", "command": "sleep 600"})
    with pytest.raises(TimeoutError):
        await box.process.wait("endless", max_wait=1000, interval=60_000)
    await refused(box.process.wait("nobody", interval=60_000), 404)


@tried()
async def test_a_copy_replaces_nothing(box):
    await box.fs.write("/srv/tree/deep/file", "one")
    await run(box, "ln -s nowhere /srv/tree/link; chmod 750 /srv/tree/deep/file")
    copied = await box.fs.cp("/srv/tree", "/srv/copy", no_overwrite=True)
    assert (copied.source, copied.destination) == ("/srv/tree", "/srv/copy")
    look = "cat /srv/copy/deep/file; readlink /srv/copy/link; stat -c %a /srv/copy/deep/file"
    assert await run(box, look) == "onenowhere\n750\n"
    await box.fs.write("/srv/copy/deep/file", "two")
    with pytest.raises(FileExistsError):
        await box.fs.cp("/srv/tree/deep/file", "/srv/copy/deep", no_overwrite=True)
    assert await box.fs.read("/srv/copy/deep/file") == "two"
    # An existing directory is where the copy goes.
    await box.fs.cp("/srv/tree", "/srv/copy", no_overwrite=True)
    assert await box.fs.read("/srv/copy/tree/deep/file") == "one"
    with pytest.raises(FileExistsError):
        await box.fs.cp("/srv/tree", "/srv/copy", no_overwrite=True)
    await refused(box.fs.cp("/srv/none", "/srv/other", no_overwrite=True), 404)
    await refused(box.fs.cp("/srv/tree", "/srv/tree/deep", no_overwrite=True), 422)


@tried()
async def test_output_arrives_while_commands_run(box):
    heard = []
    going = []

    def on_stdout(text):
        heard.append(text)
        if not going:
            going.append(asyncio.create_task(box.fs.write("/tmp/go", "")))

    # It cannot end before its first line was received.
    command = "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second; exit 3"
    done = await box.process.exec({"command": command, "wait_for_completion": True, "on_stdout": on_stdout})
    assert ("".join(heard), done.exit_code) == ("first\nsecond\n", 3)

    lines = []
    await box.process.exec({"name": "teller", "command": "seq 50000; sleep 600"})
    async with box.process.stream_logs("teller", {"on_stdout": lines.append}) as stream:
        async def all_came():
            return len(lines) == 50000

        await until("all lines came", all_came)
        await box.process.kill("teller")
        await stream.wait()
    assert lines == [str(number) for number in range(1, 50001)]
    assert (await box.process.logs("teller", "stdout")) == "".join(f"{line}\n" for line in lines)


@tried()
async def test_files(box):
    text = 'a line\nwith "quotes", ünïcödé and 🦀\n'
    await box.fs.write("/tmp/deep/a b.txt", text)
    assert await box.fs.read("/tmp/deep/a b.txt") == text
    await refused(box.fs.read("/tmp/not-there"), 404)

    every_byte = bytes(range(256)) * 20
    await box.fs.write_binary("/tmp/all.bin", every_byte)
    assert await box.fs.read_binary("/tmp/all.bin") == every_byte

    await box.fs.mkdir("/tmp/folder/inner")
    await box.fs.write_tree([{"path": "src/one.py", "content": "# Needle\n"}, {"path": "README.md", "content": ""}], "/tmp/folder")
    listed = await box.fs.ls("/tmp/folder")
    assert [each.name for each in listed.files] == ["README.md"]
    assert sorted(each.name for each in listed.subdirectories) == ["inner", "src"]
    assert [each.path for each in (await box.fs.find("/tmp/folder", type="file", patterns=["*.py"])).matches] == ["src/one.py"]
    assert [each.line for each in (await box.fs.grep("needle", "/tmp/folder", case_sensitive=False)).matches] == [1]
    assert (await box.fs.grep("needle", "/tmp/folder", case_sensitive=True)).total == 0
    await box.fs.cp("/tmp/folder", "/tmp/copy")
    assert await box.fs.read("/tmp/copy/src/one.py") == "# Needle\n"
    await refused(box.fs.rm("/tmp/folder"), 422)
    await box.fs.rm("/tmp/folder", recursive=True)
    await refused(box.fs.ls("/tmp/folder"), 404)


@tried(memory=4096)
async def test_200_mb_go_up_in_parts_and_come_back_the_same(box):
    content = os.urandom(200 * MIB + 12_345)
    digest = hashlib.sha256(content).hexdigest()
    await box.fs.write_binary("/data/large.bin", content)
    assert (await run(box, "sha256sum /data/large.bin")).split()[0] == digest
    assert hashlib.sha256(await box.fs.read_binary("/data/large.bin")).hexdigest() == digest


@tried()
async def test_changes_are_watched_with_their_content(box):
    events = []

    async def heard(event):
        events.append(event)

    await box.fs.mkdir("/tmp/watched")
    async with box.fs.watch("/tmp/watched/**", heard, {"with_content": True, "ignore": ["skipped"]}):
        beats = iter(range(1000))

        # The client does not report when its watch has begun.
        async def began():
            await box.fs.write(f"/tmp/watched/beat-{next(beats)}", "")
            return events

        await until("the watch began", began)
        await run(box, "cd /tmp/watched; echo x > skipped; mkdir sub; printf hello > sub/new; rm sub/new")
        await box.fs.write("/tmp/watched/kept", "its content")

        async def came():
            kept = any(event.name == "kept" and event.content == "its content" for event in events)
            return kept and any("REMOVE" in event.op and event.name == "new" for event in events)

        await until("all events came", came)
    assert not any(event.name == "skipped" for event in events)


@tried()
async def test_previews_and_their_tokens(box):
    await start_echo(box)
    assert json.loads((await box.fetch(3000, "/a//b?x=1", method="POST", content="text")).text)["path"] == "/a//b?x=1"
    spec = {"port": 3000, "public": True, "responseHeaders": {"Access-Control-Allow-Origin": "*"}}
    opened = await box.previews.create({"metadata": {"name": "open"}, "spec": spec})
    closed = await box.previews.create({"metadata": {"name": "closed"}, "spec": {"port": 3000, "public": False}})
    token = await closed.tokens.create(soon())
    brief = await closed.tokens.create(soon(1))
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(f"{opened.spec.url}/x")
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")

        async def status(token=None):
            headers = {"X-Blaxel-Preview-Token": token} if token else {}
            return (await browser.get(closed.spec.url, headers=headers)).status_code

        assert [await status(), await status("wrong"), await status(token.value)] == [401, 401, 200]
        assert (await browser.get(f"{closed.spec.url}?bl_preview_token={token.value}")).status_code == 200
        browser.cookies.clear()

        async def ended():
            return await status(brief.value) == 401

        await until("the token ends", ended)
        await closed.tokens.delete(token.name)
        assert await status(token.value) == 401
        await box.previews.delete("open")
        assert (await browser.get(opened.spec.url)).status_code == 404


@tried()
async def test_sessions_and_terminals(box):
    session = await box.sessions.create({"expires_at": soon()})
    inside = await SandboxInstance.from_session(session)
    await inside.fs.write("/tmp/by-session", "x")
    assert await run(inside, "cat /tmp/by-session") == "x"

    url = session.url.replace("http", "ws", 1) + f"/terminal/ws?cols=90&rows=20&bl_preview_token={session.token}"
    async with websockets.connect(url) as terminal:
        await terminal.send(json.dumps({"type": "input", "data": "stty size; echo $((6 * 7))-end\n"}))
        shown = ""
        async with asyncio.timeout(30):
            while "42-end" not in shown or "20 90" not in shown:
                message = json.loads(await terminal.recv())
                shown += message["data"] if message["type"] == "output" else ""
    await box.sessions.delete(session.name)
    await refused(inside.fs.read("/tmp/by-session"), 404)


@tried()
async def test_a_sandbox_sleeps_and_is_as_it_was(box):
    await box.fs.write("/tmp/kept", "kept")
    started = await box.process.exec({"name": "stays", "command": "sleep 600"})

    async def asleep():
        return (await SandboxInstance.get(box.metadata.name)).sandbox.state == "STANDBY"

    await until("it sleeps", asleep, 60)
    assert await box.fs.read("/tmp/kept") == "kept"
    process = await box.process.get("stays")
    assert (process.pid, process.status) == (started.pid, "running")


@tried(ttl="2s")
async def test_a_sandbox_ends_with_its_time(box):
    async def ended():
        return (await SandboxInstance.get(box.metadata.name)).status == "TERMINATED"

    await until("it is terminated", ended)
    await refused(box.fs.ls("/"), 404)


@tried()
async def test_a_schedule_runs_its_command(box):
    entry = {"type": "sleep", "value": "3s", "input": {"command": "echo ran >> /tmp/ran"}}
    made = await box.schedules.create(SandboxScheduleEntry.from_dict(entry))

    async def fired():
        return [each for each in await box.schedules.executions() if each.schedule_id == made.id and each.status_code]

    assert [each.status_code for each in await until("it fired", fired)] == [200]

    async def wrote():
        try:
            return await box.fs.read("/tmp/ran")
        except ResponseError:
            return ""

    assert await until("it wrote", wrote) == "ran\n"
    name = box.metadata.name
    executions = call("compute.list_schedule_executions", sandbox=name, status=ListScheduleExecutionsStatus.SUCCEEDED).data
    assert [(each.sandbox, each.schedule_id, each.status) for each in executions] == [(name, made.id, "succeeded")]
    assert call("compute.list_schedule_executions", sandbox=name, status=ListScheduleExecutionsStatus.FAILED).data == []
    metrics = call("compute.get_sandbox_schedule_metrics", until=soon(60))
    assert metrics.executions >= 1 and metrics.executions_by_status.succeeded >= 1 and metrics.sandboxes >= 1


def test_schedules_of_all_sandboxes_are_listed():
    boxes = [SyncSandboxInstance.create({"name": fresh("box"), "region": "local"}) for _ in range(2)]
    entry = {"id": fresh("nightly"), "type": "cron", "value": "0 3 * * *", "input": {"command": "true"}}
    for box in boxes:
        box.schedules.create(entry)
    seen, cursor = [], ""
    while True:
        page = call("compute.list_schedules", limit=1, cursor=cursor, q=entry["id"], type_=ListSchedulesType.CRON)
        seen += [(each.sandbox, each.id) for each in page.data]
        if not page.meta.has_more:
            break
        cursor = page.meta.next_cursor
    assert seen == [(box.metadata.name, entry["id"]) for box in reversed(boxes)]
    one = call("compute.list_schedules", sandbox=boxes[0].metadata.name)
    assert [each.sandbox for each in one.data] == [boxes[0].metadata.name]
    assert call("compute.get_sandbox_schedule_metrics").schedules >= 2
    for box in boxes:
        SyncSandboxInstance.delete(box.metadata.name)


@tried()
async def test_health_drives_and_tools(box):
    health = await box.system.health()
    assert (health.status, health.upgrade_count) == ("ok", 0)
    assert await box.drives.list() == []
    with pytest.raises(Exception, match="drive"):
        await box.drives.mount(drive_name="shared", mount_path="/mnt/shared")
    tools = await bl_tools([f"sandboxes/{box.metadata.name}"]).initialize()
    execute = next(tool for tool in tools.get_tools() if tool.name == "processExecute")
    called = await execute.coroutine(command="echo by tool", waitForCompletion=True)
    assert "by tool" in str(called)


def test_an_image_that_is_not_there_is_refused():
    with pytest.raises(SandboxAPIError) as error:
        SyncSandboxInstance.create({"name": fresh("box"), "region": "local", "image": "blaxel/no-such-image"})
    assert error.value.status_code == 400


def test_a_sandbox_without_a_loop():
    box = SyncSandboxInstance.create({"name": fresh("box"), "region": "local", "memory": 1024})
    try:
        done = box.process.exec({"command": "echo hi; exit 4", "wait_for_completion": True})
        assert (done.stdout, done.exit_code) == ("hi\n", 4)
        heard = []
        done = box.process.exec({"command": "echo one; echo two", "wait_for_completion": True, "on_stdout": heard.append})
        assert ("".join(heard), done.exit_code) == ("one\ntwo\n", 0)
        content = os.urandom(12 * MIB)
        box.fs.write_binary("/tmp/parts.bin", content)
        assert box.fs.read_binary("/tmp/parts.bin") == content
        box.fs.write("/tmp/text", "text")
        assert (box.fs.read("/tmp/text"), [each.name for each in box.fs.ls("/tmp").files]) == ("text", ["parts.bin", "text"])
        session = box.sessions.create()
        assert SyncSandboxInstance.from_session(session).fs.read("/tmp/text") == "text"
        box.process.exec({"name": "web", "command": "python3 -m http.server 3000", "working_dir": "/tmp", "wait_for_ports": [3000]})
        assert box.fetch(3000, "/text").text == "text"
    finally:
        SyncSandboxInstance.delete(box.metadata.name)


def test_code_is_interpreted_piece_by_piece():
    async def test():
        interpreter = await CodeInterpreter.create({"name": fresh("code"), "region": "local"})
        try:
            heard = []
            done = await interpreter.run_code("x = 20\nprint('out')\nx + 1", on_stdout=lambda message: heard.append(message.text))
            assert ("".join(heard), done.results[0].text, done.error) == ("out\n", "21", None)
            assert (await interpreter.run_code("x * 2")).results[0].text == "40"
            assert (await interpreter.run_code("1 / 0")).error.name == "ZeroDivisionError"
            context = await interpreter.create_code_context(cwd="/tmp")
            assert (await interpreter.run_code("import os; os.getcwd()", context=context)).results[0].text == "'/tmp'"
            again = SyncCodeInterpreter.get(interpreter.metadata.name)
            assert again.run_code("x").results[0].text == "20"
        finally:
            await SandboxInstance.delete(interpreter.metadata.name)

    asyncio.run(test())
