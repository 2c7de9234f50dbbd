// The device flow: a code of the command line is confirmed in a browser without JavaScript.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { browse, picture, server, signIn, token, works } from "./support.mjs";

const run = promisify(execFile);

function home(t) {
  const folder = mkdtempSync(join(tmpdir(), "holm-home-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/// Returns the environment of a person who has set nothing.
function bare(folder) {
  return { PATH: process.env.PATH, HOME: folder, BL_API_URL: `${server}/v0`, BL_RUN_URL: server, BL_DISABLE_H2: "1", DO_NOT_TRACK: "1" };
}

async function begin() {
  const answer = await fetch(`${server}/v0/oauth/device/code`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ client_id: "blaxel", scope: "offline_access" }),
  });
  assert.equal(answer.status, 200);
  return answer.json();
}

const poll = (device_code) =>
  token({ grant_type: "urn:ietf:params:oauth:grant-type:device_code", client_id: "blaxel", device_code });

test("the command line is signed in by a browser", async (t) => {
  const environment = bare(home(t));
  const login = spawn(process.env.HOLM_PROGRAM, ["login", "main"], { env: { ...environment, HOLM_URL: server } });
  t.after(() => login.kill());
  const ended = new Promise((done) => login.on("exit", done));
  const address = await new Promise((found, failed) => {
    let said = "";
    login.stderr.on("data", (text) => {
      said += text;
      const match = said.match(/(http\S*user_code=\S+)/);
      if (match) found(match[1]);
    });
    login.on("exit", () => failed(new Error(said)));
  });
  await browse(t, {}, async (page) => {
    await page.goto(address);
    await signIn(page);
    await page.getByRole("button", { name: "Allow", exact: true }).waitFor();
    await picture(page, "device-consent");
    await page.getByRole("button", { name: "Allow", exact: true }).click();
    await page.getByText("Your device is signed in").waitFor();
    await picture(page, "device-done");
  });
  assert.equal(await ended, 0);
  const { stdout } = await run(process.env.HOLM_PROGRAM, ["token"], { env: environment });
  assert.ok(await works(stdout.trim()));
});

test("a code typed by hand signs a published client in, which then refreshes by itself", async (t) => {
  const device = await begin();
  const pending = await poll(device.device_code);
  assert.deepEqual([pending.status, pending.body.error], [400, "authorization_pending"]);
  await browse(t, {}, async (page) => {
    await page.goto(device.verification_uri);
    await signIn(page);
    await picture(page, "device-code");
    await page.getByRole("textbox").fill(device.user_code.toLowerCase());
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("button", { name: "Allow", exact: true }).click();
    await page.getByText("Your device is signed in").waitFor();
  });
  // The server asks for a pause between two polls.
  await new Promise((done) => setTimeout(done, device.interval * 1000));
  const { status, body } = await poll(device.device_code);
  assert.equal(status, 200, JSON.stringify(body));
  assert.deepEqual(Object.keys(body).sort(), ["access_token", "expires_in", "refresh_token", "token_type"]);

  // What the published command line would store. Without an access token the client begins with a
  // refresh.
  const folder = home(t);
  const credentials = { refresh_token: body.refresh_token, device_code: device.device_code, access_token: "" };
  mkdirSync(join(folder, ".blaxel"));
  const config = { context: { workspace: "main" }, workspaces: [{ name: "main", credentials }] };
  writeFileSync(join(folder, ".blaxel", "config.yaml"), JSON.stringify(config));
  const program = 'import * as bl from "@blaxel/core"; console.log((await bl.listSandboxes()).response.status);';
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { env: bare(folder) });
  assert.equal(stdout.trim(), "200");
});

test("a refused or made-up code signs nobody in", async (t) => {
  const device = await begin();
  await browse(t, {}, async (page) => {
    await page.goto(`${server}/oauth/device?user_code=AAAA-AAAA`);
    await signIn(page);
    await page.getByRole("alert").waitFor();
    await picture(page, "device-unknown");
    await page.goto(device.verification_uri_complete);
    await page.getByRole("button", { name: "Do not allow" }).click();
    await page.getByText("The device was not signed in").waitFor();
  });
  const { status, body } = await poll(device.device_code);
  assert.deepEqual([status, body.error], [400, "access_denied"]);
});
