"""Snapshots, forks, archives and restores, with the helpers of the client."""

import pytest
from blaxel.core import SandboxAPIError, SyncSandboxInstance
from blaxel.core.snapshot import SyncSnapshot
from blaxel.core.snapshot.snapshot import SnapshotAPIError
from support import call, fresh


@pytest.fixture
def box(boxes):
    boxes.append(fresh("box"))
    return SyncSandboxInstance.create({"name": boxes[-1], "region": "local", "memory": 1024})


def run(box, command):
    process = box.process.exec({"command": command, "wait_for_completion": True})
    assert process.exit_code == 0, process.logs
    return process.stdout


def test_a_fork_has_the_files_of_its_sandbox(box, boxes):
    run(box, "echo before > /root/x")
    boxes.append(fresh("fork"))
    answer = box.fork(boxes[-1])
    assert (answer.type_, answer.name) == ("sandbox", boxes[-1])
    two = SyncSandboxInstance.get(boxes[-1])
    assert run(two, "cat /root/x; hostname") == f"before\n{boxes[-1]}\n"
    with pytest.raises(SandboxAPIError) as refused:
        box.fork(boxes[-1])
    assert refused.value.status_code == 409


def test_a_snapshot_outlives_its_sandbox(box, boxes):
    run(box, "echo first > /root/x")
    taken = box.snapshots.create("first")
    assert (taken.name, taken.status) == ("first", "ready")
    run(box, "echo second > /root/x")
    assert box.snapshots.restore("first").snapshot_id == taken.id
    assert run(box, "cat /root/x") == "first\n"
    assert [one.id for one in box.snapshots.list()] == [taken.id]
    SyncSandboxInstance.delete(boxes[0])
    found = SyncSnapshot.get(taken.id)
    assert found.source.deleted is True
    assert taken.id in [one.id for one in SyncSnapshot.list(limit=1).auto_paging_iter()]
    boxes.append(fresh("fork"))
    assert found.fork(boxes[-1]).snapshot_id == taken.id
    assert run(SyncSandboxInstance.get(boxes[-1]), "cat /root/x") == "first\n"
    found.delete()
    with pytest.raises(SnapshotAPIError) as refused:
        SyncSnapshot.get(taken.id)
    assert refused.value.status_code == 404


def test_an_application_begins_with_a_snapshot(box):
    taken = SyncSnapshot.create({"source": {"name": box.metadata.name}})
    name = fresh("app")
    answer = taken.fork(name, target_type="application", port=4000)
    try:
        assert (answer.type_, answer.snapshot_id) == ("application", taken.id)
        app = call("applications.get_application", application_name=name)
        assert app.spec.port == 4000
    finally:
        call("applications.delete_application", application_name=name)
        taken.delete()


def test_an_archived_sandbox_comes_back_with_its_files(box):
    run(box, "echo kept > /root/x")
    box.archive(interval=100)
    assert box.status == "ARCHIVED"
    with pytest.raises(SandboxAPIError) as refused:
        box.archive()
    assert refused.value.status_code == 409
    box.unarchive(interval=100)
    assert box.status == "DEPLOYED"
    assert run(box, "cat /root/x") == "kept\n"
