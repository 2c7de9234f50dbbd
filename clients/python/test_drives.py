"""Drives with the helpers of the client: mounted in sandboxes that run, shared, bounded, and emptied."""

import asyncio

import pytest
from blaxel.core import SandboxInstance, settings
from blaxel.core.client.client import client
from blaxel.core.drive import DriveInstance
from support import fresh, send


def removed(path, folder):
    answer = client.get_httpx_client().request("DELETE", path, headers=settings.headers, params={"path": folder})
    return answer.status_code


async def said(box, command):
    done = await box.process.exec({"command": command, "wait_for_completion": True})
    return done.stdout.strip()


def test_two_sandboxes_share_a_drive():
    async def go():
        boxes = [await SandboxInstance.create({"name": fresh("box"), "region": "local", "memory": 512}) for _ in range(2)]
        one, two = boxes
        drive = await DriveInstance.create({"name": fresh("drive"), "region": "local"})
        try:
            mounted = await one.drives.mount(drive.name, "mnt/shared")
            assert (mounted.success, mounted.mount_path, mounted.drive_path) == (True, "/mnt/shared", "/")
            await two.drives.mount(drive.name, "/mnt/here", drive_path="/a", read_only=False)
            await said(two, "sh -c 'mkdir -p /mnt/here/b && echo from two > /mnt/here/b/x'")
            assert await said(one, "cat /mnt/shared/a/b/x") == "from two"
            # A folder is deleted with everything in it, even while a folder around it is mounted.
            path = f"/drives/{drive.name}/folders"
            assert removed(path, "/a/b") == 204
            assert removed(path, "/a/b") == 404
            assert removed(path, "/") == 400
            assert removed(path, "/a/../b") == 400
            assert await said(two, "ls -A /mnt/here") == ""
            with pytest.raises(Exception, match="in use"):
                await one.drives.mount(drive.name, "/mnt/shared", "/a")
            listed = await one.drives.list()
            assert [(mount.drive_name, mount.mount_path, mount.read_only) for mount in listed] == [
                (drive.name, "/mnt/shared", False)
            ]
            assert (await one.drives.unmount("/mnt/shared")).success
            with pytest.raises(Exception, match="no drive is mounted"):
                await one.drives.unmount("/mnt/shared")
        finally:
            for box in boxes:
                await SandboxInstance.delete(box.metadata.name)
        await DriveInstance.delete(drive.name)

    asyncio.run(go())


def test_a_rule_that_is_not_for_a_sandbox_denies_it():
    async def go():
        box = await SandboxInstance.create({"name": fresh("box"), "region": "local", "memory": 512})
        name = fresh("drive")
        permissions = [{"labels": {"team": "a"}, "mode": "read", "path": "/"}]
        body = {"metadata": {"name": name}, "spec": {"region": "local", "permissions": permissions}}
        send("POST", "/drives", json=body)
        try:
            with pytest.raises(Exception, match="permission denied"):
                await box.drives.mount(name, "/mnt/d")
            assert await said(box, "ls -d /mnt/d || echo none") == "none"
        finally:
            await SandboxInstance.delete(box.metadata.name)
        await DriveInstance.delete(name)

    asyncio.run(go())
