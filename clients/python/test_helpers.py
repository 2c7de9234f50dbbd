"""The helpers that the client builds on top of the generated calls: the asynchronous ones, then the synchronous ones."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from blaxel.core import (
    ApplicationInstance,
    DriveInstance,
    SandboxAPIError,
    SandboxInstance,
    SyncApplicationInstance,
    SyncDriveInstance,
    SyncSandboxInstance,
    SyncVolumeInstance,
    VolumeInstance,
)
from blaxel.core.client.models import SandboxLifecycle, SandboxScheduleEntry
from support import call, fresh, packed, send, until, upload

SOON = datetime.now(timezone.utc) + timedelta(minutes=10)
IDLE = {"expirationPolicies": [{"type": "ttl-idle", "value": "30m", "action": "delete"}]}


def test_a_sandbox_from_its_making_to_its_end():
    async def run():
        name = fresh("box")
        box = await SandboxInstance.create({"name": name, "region": "local", "labels": {"team": "a"}})
        assert (box.metadata.name, box.spec.runtime.memory) == (name, 4096)
        assert box.metadata.url.startswith("http")
        again = await SandboxInstance.create_if_not_exists({"name": name, "region": "local"})
        assert again.metadata.created_at == box.metadata.created_at
        with pytest.raises(SandboxAPIError) as refused:
            await SandboxInstance.create({"name": name, "region": "local"})
        assert refused.value.status_code == 409

        assert (await SandboxInstance.update_ttl(name, "24h")).spec.runtime.ttl == "24h"
        assert not (await SandboxInstance.update_ttl(name, None)).spec.runtime.ttl
        limited = await SandboxInstance.update_lifecycle(name, SandboxLifecycle.from_dict(IDLE))
        assert limited.spec.lifecycle.expiration_policies[0].value == "30m"
        assert (await SandboxInstance.get(name)).expires_in > 0

        await SandboxInstance.delete(name)
        with pytest.raises(SandboxAPIError) as missing:
            await SandboxInstance.get(name)
        assert missing.value.status_code == 404

    asyncio.run(run())


def test_a_sandbox_without_waiting_for_a_loop():
    box = SyncSandboxInstance.create({"name": fresh("box"), "region": "local"})
    assert SyncSandboxInstance.get(box.metadata.name).metadata.name == box.metadata.name
    assert SyncSandboxInstance.update_ttl(box.metadata.name, "1h").spec.runtime.ttl == "1h"
    SyncSandboxInstance.delete(box.metadata.name)


def test_a_sandbox_without_a_name_gets_one():
    box = SyncSandboxInstance.create({"region": "local"})
    assert box.metadata.name
    SyncSandboxInstance.delete(box.metadata.name)


def test_previews_tokens_sessions_and_schedules():
    async def run():
        box = await SandboxInstance.create({"name": fresh("box"), "region": "local"})
        preview = await box.previews.create_if_not_exists({"metadata": {"name": "web"}, "spec": {"port": 3000, "public": False}})
        assert preview.metadata.resource_name == box.metadata.name
        token = await preview.tokens.create(SOON)
        assert [each.value for each in await preview.tokens.list()] == [token.value]
        await preview.tokens.delete(token.name)
        assert await preview.tokens.list() == []
        assert [each.name for each in await box.previews.list()] == ["web"]
        await box.previews.delete("web")
        assert await box.previews.list() == []

        session = await box.sessions.create({"expires_at": SOON})
        assert (await box.sessions.get(session.name)).token == session.token
        assert [each.name for each in await box.sessions.list()] == [session.name]
        await box.sessions.delete(session.name)

        entry = {"id": "nightly", "type": "cron", "value": "0 3 * * *", "input": {"command": "true"}}
        await box.schedules.create(SandboxScheduleEntry.from_dict(entry))
        changed = SandboxScheduleEntry.from_dict(entry | {"value": "30 4 * * *"})
        assert (await box.schedules.update("nightly", changed)).value == "30 4 * * *"
        assert [each.id for each in await box.schedules.list()] == ["nightly"]
        assert list(await box.schedules.executions()) == []
        await box.schedules.delete("nightly")
        await SandboxInstance.delete(box.metadata.name)

    asyncio.run(run())


def test_all_sandboxes_are_seen_once_across_pages():
    names = [fresh("page") for _ in range(7)]
    for name in names:
        SyncSandboxInstance.create({"name": name, "region": "local"})
    seen = [box.metadata.name for box in SyncSandboxInstance.list(limit=2).auto_paging_iter()]
    assert len(seen) == len(set(seen))
    assert set(names) <= set(seen)

    async def walk():
        return [box.metadata.name async for box in (await SandboxInstance.list(limit=3)).auto_paging_iter()]

    assert asyncio.run(walk()) == seen
    for name in names:
        SyncSandboxInstance.delete(name)


def test_volumes():
    async def run():
        name = fresh("volume")
        volume = await VolumeInstance.create({"name": name, "size": 1024, "region": "local"})
        assert (await VolumeInstance.create_if_not_exists({"name": name, "size": 1024})).metadata.created_at == volume.metadata.created_at
        assert (await VolumeInstance.update(name, {"size": 2048})).size == 2048
        assert name in [each.name for each in await VolumeInstance.list()]
        await VolumeInstance.delete(name)

    asyncio.run(run())
    volume = SyncVolumeInstance.create({"name": fresh("volume"), "size": 1024})
    assert SyncVolumeInstance.get(volume.name).size == 1024
    SyncVolumeInstance.delete(volume.name)


def test_volumes_of_templates():
    name, disk = fresh("template"), fresh("volume")
    answer = send("POST", "/volume_templates", params={"upload": "true", "version": "blue"}, json={"metadata": {"name": name}, "spec": {}})
    upload(answer, packed({"data/x": "from the template\n"}))

    def ready():
        template = call("volume_templates.get_volume_template", volume_template_name=name)
        return template.state.latest_version == "blue"

    until("the version is ready", ready)
    volume = SyncVolumeInstance.create({"name": disk, "template": f"{name}:blue", "size": 512, "region": "local"})
    assert volume.size == 512
    box = SyncSandboxInstance.create({"name": fresh("box"), "region": "local", "volumes": [{"name": disk, "mount_path": "/data", "read_only": False}]})
    assert box.fs.read("/data/data/x") == "from the template\n"
    SyncSandboxInstance.delete(box.metadata.name)
    SyncVolumeInstance.delete(disk)
    call("volume_templates.delete_volume_template", volume_template_name=name)


def test_drives():
    async def run():
        name = fresh("drive")
        await DriveInstance.create({"name": name, "region": "local"})
        assert (await DriveInstance.update(name, {"display_name": "Ours"})).display_name == "Ours"
        assert name in [each.name for each in await DriveInstance.list()]
        await DriveInstance.delete(name)

    asyncio.run(run())
    drive = SyncDriveInstance.create_if_not_exists({"name": fresh("drive"), "region": "local"})
    assert SyncDriveInstance.get(drive.name).name == drive.name
    SyncDriveInstance.delete(drive.name)


def test_applications():
    async def run():
        name = fresh("application")
        made = await ApplicationInstance.create_if_not_exists({"name": name, "image": "app/web:1", "memory": 2048})
        again = await ApplicationInstance.create_if_not_exists({"name": name, "image": "app/web:1", "memory": 2048})
        assert again.metadata.created_at == made.metadata.created_at
        assert name in [each.name for each in await ApplicationInstance.list()]
        await ApplicationInstance.delete(name)

    asyncio.run(run())
    made = SyncApplicationInstance.create({"name": fresh("application"), "image": "app/web:1"})
    SyncApplicationInstance.delete(made.name)
