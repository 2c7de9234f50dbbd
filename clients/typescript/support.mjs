// What the tests of the TypeScript client share.
import assert from "node:assert/strict";

let made = 0;

/// A name that no other test uses: files run at the same time against one server.
export function fresh(prefix) {
  made += 1;
  return `${prefix}-${process.pid}-${made}`;
}

/// The data of a call of the generated client, which must succeed with 200.
export async function ok(call) {
  const { data, error, response } = await call;
  assert.equal(response.status, 200, `${response.url}: ${JSON.stringify(error)}`);
  return data;
}

/// The body of a call of the generated client, which must fail with the status, in the shape of the contract.
export async function refused(call, status) {
  const { error, response } = await call;
  assert.equal(response.status, status, response.url);
  check(error, status);
  return error;
}

/// What a helper throws: the body of the answer.
export async function thrown(promise, status) {
  const error = await promise.then(
    (value) => assert.fail(`must fail with ${status}, answered ${JSON.stringify(value)}`),
    (error) => error,
  );
  if (error instanceof assert.AssertionError) throw error;
  check(error, status);
  return error;
}

function check(error, status) {
  assert.equal(error.code, status);
  assert.equal(typeof error.error, "string");
  assert.equal(typeof error.message, "string");
}

/// Names of resources.
export function names(list) {
  return list.map((item) => item.metadata.name);
}
