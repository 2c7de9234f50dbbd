"""Executions of jobs whose tasks run, with the helpers of the client: the synchronous ones, and some of the asynchronous ones."""

import asyncio
import os

import httpx
import pytest
from blaxel.core.client.models import CreateJobExecutionRequest, Job
from blaxel.core.jobs import bl_job
from support import call, fresh

# Its shell runs the command in COMMAND; `tools/task-image` makes it.
IMAGE = "holm/test-task"
QUICK = {"max_wait": 60, "interval": 1}


@pytest.fixture
def job():
    """Creates jobs whose tasks run a command. The arguments of a task are `$1`, `$2` and so on."""
    made = []

    def make(command, **runtime):
        name = fresh("job")
        envs = [{"name": "COMMAND", "value": command}, {"name": "COLOUR", "value": "blue"}]
        usual = {"image": IMAGE, "memory": 256, "timeout": 60, "maxRetries": 0, "envs": envs}
        body = Job.from_dict({"metadata": {"name": name}, "spec": {"runtime": usual | runtime}})
        call("jobs.create_job", body=body)
        made.append(name)
        return bl_job(name)

    yield make
    for name in made:
        call("jobs.delete_job", job_id=name)


def lines(name, **more):
    """Returns the messages that tasks of a job have printed, sorted. The client has no helper for this."""
    query = {"resourceType": "jobs", "workloadIds": name, "limit": 1000} | more
    headers = {"authorization": f"Bearer {os.environ['BL_API_KEY']}", "x-blaxel-workspace": "main"}
    answer = httpx.get(f"{os.environ['BL_API_URL']}/observability/logs", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return sorted(line["message"] for line in answer.json()[name]["logs"])


def test_tasks_run_with_their_arguments(job):
    greet = job('echo "$1 $2 $COLOUR $TASK_INDEX"')
    request = CreateJobExecutionRequest(tasks=[{"name": "ann"}, {"name": "bob"}])
    execution_id = greet.create_execution(request)
    execution = greet.wait_for_execution(execution_id, **QUICK)
    assert execution.status == "succeeded"
    assert (execution.metadata.id, execution.stats.total, execution.stats.success) == (execution_id, 2, 2)
    assert greet.get_execution_status(execution_id) == "succeeded"
    assert lines(greet.name, executionId=execution_id) == ["--name ann blue 0", "--name bob blue 1"]


def test_an_execution_has_an_id_variables_and_memory_of_its_own(job):
    own = job('echo "$COLOUR $BL_EXECUTION_ID"')
    execution_id = fresh("mine")
    assert own.run([{}], execution_id=execution_id, env={"COLOUR": "red"}, memory=128) == execution_id
    execution = own.wait_for_execution(execution_id, **QUICK)
    assert (execution.status, execution.spec.memory_override) == ("succeeded", 128)
    assert lines(own.name) == [f"red {execution_id}"]
    for wrong in ({"execution_id": execution_id}, {"memory": 512}):
        with pytest.raises(Exception):
            own.run([{}], **wrong)


def test_a_task_that_fails_is_tried_again(job):
    bad = job('echo "try $2"; [ "$2" = good ] || exit 7', maxRetries=1)

    async def run():
        execution_id = await bad.arun([{"is": "good"}, {"is": "bad"}])
        execution = await bad.await_for_execution(execution_id, **QUICK)
        assert await bad.aget_execution_status(execution_id) == "failed"
        return execution.stats

    stats = asyncio.run(run())
    assert (stats.success, stats.failure, stats.retried) == (1, 1, 1)
    assert lines(bad.name, taskId=1) == ["try bad", "try bad"]


def test_executions_are_listed_the_newest_first(job):
    many = job("true")
    assert many.list_executions(limit=5).data == []
    ids = [many.run([{}]) for _ in range(5)][::-1]
    page = many.list_executions(limit=2)
    assert [execution.metadata.id for execution in page.data] == ids[:2]
    assert page.has_more
    assert [execution.metadata.id for execution in page.auto_paging_iter()] == ids
    for execution_id in ids:
        assert many.wait_for_execution(execution_id, **QUICK).status == "succeeded"


def test_a_cancelled_execution_starts_nothing_more(job):
    slow = job("echo begun; sleep 3; echo ended", maxConcurrentTasks=1)

    async def run():
        execution_id = await slow.arun([{}, {}, {}])
        while not lines(slow.name):
            await asyncio.sleep(0.1)
        await slow.acancel_execution(execution_id)
        return await slow.await_for_execution(execution_id, **QUICK)

    execution = asyncio.run(asyncio.wait_for(run(), 60))
    assert (execution.status, execution.stats.success, execution.stats.cancelled) == ("cancelled", 1, 2)
    assert lines(slow.name) == ["begun", "ended"]


def test_what_is_not_there_is_not_found(job):
    some = job("true")
    for failing in (some.get_execution, some.cancel_execution):
        with pytest.raises(Exception):
            failing("none")
    with pytest.raises(Exception):
        bl_job(fresh("nobody")).run([{}])
