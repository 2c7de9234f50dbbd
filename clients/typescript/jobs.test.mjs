// Executions of jobs whose tasks run, with the helper of the client.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, ok, refused, thrown, until } from "./support.mjs";

/// Its shell runs the command in COMMAND; `tools/task-image` makes it.
const image = "holm/test-task";

/// Creates a job for one test, whose tasks run a command. The arguments of a task are `$1`, `$2`
/// and so on.
async function job(context, command, runtime = {}) {
  const name = fresh("job");
  const envs = [{ name: "COMMAND", value: command }, { name: "COLOUR", value: "blue" }];
  const spec = { runtime: { image, memory: 256, timeout: 60, maxRetries: 0, envs, ...runtime } };
  await ok(bl.createJob({ body: { metadata: { name }, spec } }));
  context.after(() => bl.deleteJob({ path: { jobId: name } }));
  return bl.blJob(name);
}

const quick = { maxWait: 60_000, interval: 200 };

/// Returns the messages that tasks of a job have printed, sorted. The client has no helper for
/// this.
async function lines(name, filter = {}) {
  const query = new URLSearchParams({ resourceType: "jobs", workloadIds: name, limit: "1000", ...filter });
  const headers = { authorization: `Bearer ${process.env.BL_API_KEY}`, "x-blaxel-workspace": "main" };
  const response = await fetch(`${process.env.BL_API_URL}/observability/logs?${query}`, { headers });
  assert.equal(response.status, 200);
  return (await response.json())[name].logs.map(({ message }) => message).sort();
}

test("tasks run with their arguments, and the execution says that they succeeded", async (t) => {
  const greet = await job(t, 'echo "$1 $2 $COLOUR $TASK_INDEX"');
  const id = await greet.createExecution({ tasks: [{ name: "ann" }, { name: "bob" }] });
  const execution = await greet.waitForExecution(id, quick);
  assert.equal(execution.status, "succeeded");
  assert.equal(execution.metadata.id, id);
  assert.deepEqual([execution.stats.total, execution.stats.success, execution.stats.failure], [2, 2, 0]);
  assert.equal(await greet.getExecutionStatus(id), "succeeded");
  assert.deepEqual(await lines(greet.jobName, { executionId: id }), ["--name ann blue 0", "--name bob blue 1"]);
  const tasks = await ok(bl.listJobExecutionTasks({ path: { jobId: greet.jobName, executionId: id } }));
  assert.deepEqual((tasks.data ?? tasks).map(({ status, metadata }) => [metadata.name, status]), [["0", "succeeded"], ["1", "succeeded"]]);
});

test("an execution has an id, variables and memory of its own", async (t) => {
  const own = await job(t, 'echo "$COLOUR $BL_EXECUTION_ID"; cat /sys/fs/cgroup/memory.max 2>/dev/null || true');
  const id = fresh("mine");
  assert.equal(await own.run([{}], { executionId: id, env: { COLOUR: "red" }, memory: 128 }), id);
  const execution = await own.waitForExecution(id, quick);
  assert.equal(execution.status, "succeeded");
  assert.equal(execution.spec.memoryOverride, 128);
  assert.deepEqual(execution.spec.envOverride, { COLOUR: "***" });
  assert.ok((await lines(own.jobName)).includes(`red ${id}`));
  await thrown(own.createExecution({ tasks: [{}], executionId: id }), 409);
  await thrown(own.createExecution({ tasks: [{}], memory: 512 }), 400);
  await thrown(own.createExecution({ tasks: [] }), 400);
});

test("a task that fails is tried again, and then the execution has failed", async (t) => {
  const bad = await job(t, 'echo "try $2"; [ "$2" = good ] || exit 7', { maxRetries: 1 });
  const id = await bad.run([{ is: "good" }, { is: "bad" }]);
  const execution = await bad.waitForExecution(id, quick);
  assert.equal(execution.status, "failed");
  const { success, failure, retried } = execution.stats;
  assert.deepEqual([success, failure, retried], [1, 1, 1]);
  assert.deepEqual(await lines(bad.jobName, { taskId: "1" }), ["try bad", "try bad"]);
});

test("executions are listed, the newest first, page by page", async (t) => {
  const many = await job(t, "true");
  assert.deepEqual((await many.listExecutions({ limit: 5 })).data, []);
  const ids = [];
  for (let made = 0; made < 5; made += 1) ids.unshift(await many.run([{}]));
  const page = await many.listExecutions({ limit: 2 });
  assert.deepEqual(page.data.map(({ metadata }) => metadata.id), ids.slice(0, 2));
  assert.ok(page.hasMore);
  const all = await page.autoPagingToArray({ limit: 100 });
  assert.deepEqual(all.map(({ metadata }) => metadata.id), ids);
  for (const id of ids) assert.equal((await many.waitForExecution(id, quick)).status, "succeeded");
});

test("a cancelled execution lets end what runs and starts nothing more", async (t) => {
  const slow = await job(t, "echo begun; sleep 3; echo ended", { maxConcurrentTasks: 1 });
  const id = await slow.run([{}, {}, {}]);
  await until("the first task runs", async () => (await lines(slow.jobName)).length > 0);
  await slow.cancelExecution(id);
  const execution = await slow.waitForExecution(id, quick);
  assert.equal(execution.status, "cancelled");
  assert.deepEqual([execution.stats.success, execution.stats.cancelled], [1, 2]);
  assert.deepEqual(await lines(slow.jobName), ["begun", "ended"]);
});

test("what is not there is not found", async (t) => {
  const some = await job(t, "true");
  await thrown(some.getExecution("none"), 404);
  await thrown(some.cancelExecution("none"), 404);
  await thrown(bl.blJob(fresh("nobody")).createExecution({ tasks: [{}] }), 404);
  await refused(bl.listJobExecutionTasks({ path: { jobId: some.jobName, executionId: "none" } }), 404);
});
