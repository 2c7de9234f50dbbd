// Commands that sandboxes run by the clock.
import assert from "node:assert/strict";
import * as bl from "@blaxel/core";
import { test } from "node:test";
import { ok, sandbox, thrown, until } from "./support.mjs";

const fired = async (box, id) => (await box.schedules.executions({ limit: 10 })).data.filter(({ scheduleId }) => scheduleId === id);

test("a command after a pause runs once, wakes its sandbox, and is in the history", async (t) => {
  const box = await sandbox(t);
  const input = { command: 'echo "ran $WHO" >> /tmp/ran', env: { WHO: "by schedule" } };
  const { id } = await box.schedules.create({ type: "sleep", value: "4s", input });
  const [execution] = await until("it is in the history", async () => {
    const all = await fired(box, id);
    return all.length > 0 && all.every(({ statusCode }) => statusCode) && all;
  });
  assert.equal(execution.statusCode, 200);
  assert.equal(await until("it ran", () => box.fs.read("/tmp/ran").catch(() => "")), "ran by schedule\n");
  // A schedule for a single run is gone afterwards.
  await until("the schedule is gone", async () => !(await box.schedules.list()).data.some((entry) => entry.id === id));
  assert.equal((await fired(box, id)).length, 1);

  const query = { sandbox: box.metadata.name };
  const { data } = await ok(bl.listScheduleExecutions({ query: { ...query, status: "succeeded" } }));
  assert.deepEqual(data.map((one) => [one.sandbox, one.scheduleId, one.status]), [[query.sandbox, id, "succeeded"]]);
  assert.deepEqual((await ok(bl.listScheduleExecutions({ query: { ...query, schedule: "other" } }))).data, []);
  const soon = new Date(Date.now() + 60_000).toISOString();
  const metrics = await ok(bl.getSandboxScheduleMetrics({ query: { until: soon } }));
  assert.ok(metrics.executions >= 1 && metrics.executionsByStatus.succeeded >= 1, JSON.stringify(metrics));
});

test("a command at a time runs, and one that is taken back does not", async (t) => {
  const box = await sandbox(t);
  const at = new Date(Date.now() + 3000).toISOString();
  await box.schedules.create({ id: "not", type: "at", value: at, input: { command: "echo wrong >> /tmp/ran" } });
  await box.schedules.create({ id: "once", type: "at", value: at, input: { command: "echo right >> /tmp/ran" } });
  await box.schedules.delete("not");
  await until("it ran", async () => (await fired(box, "once")).length === 1);
  assert.equal(await until("it wrote", () => box.fs.read("/tmp/ran").catch(() => "")), "right\n");
  assert.deepEqual(await fired(box, "not"), []);
});

test("a command by the calendar is listed with the others, and its bad forms are refused", async (t) => {
  const box = await sandbox(t);
  await box.schedules.create({ id: "nightly", type: "cron", value: "0 3 * * *", input: { command: "true" } });
  await box.schedules.create({ id: "later", type: "sleep", value: "10m", input: { command: "true" } });
  const listed = (await box.schedules.list({ type: "cron" })).data;
  assert.deepEqual(listed.map(({ id, type, value }) => [id, type, value]), [["nightly", "cron", "0 3 * * *"]]);
  assert.deepEqual((await box.schedules.list()).data.map(({ id }) => id).sort(), ["later", "nightly"]);
  const query = { sandbox: box.metadata.name, type: "at" };
  const all = await ok(bl.listSchedules({ query }));
  assert.deepEqual(all.data.map(({ id, sandbox }) => [id, sandbox]), [["later", query.sandbox]]);
  assert.equal((await ok(bl.getSandboxScheduleMetrics())).schedules >= 2, true);
  await thrown(box.schedules.create({ type: "cron", value: "61 * * * *", input: { command: "true" } }), 400);
  await thrown(box.schedules.create({ type: "sleep", value: "soon", input: { command: "true" } }), 400);
});
