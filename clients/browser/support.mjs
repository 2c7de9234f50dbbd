// A browser for the tests, and the people who use it.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const server = process.env.HOLM_ADDRESS;
/// An element that has not appeared by then will not come.
const TIMEOUT_MS = 10_000;

/// Runs `visit` with a page of a new browser without any history.
export async function browse(t, { javaScriptEnabled = false, colorScheme = "light" }, visit) {
  const profile = mkdtempSync(join(tmpdir(), "holm-browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
    viewport: { width: 900, height: 700 },
    javaScriptEnabled,
    colorScheme,
  });
  context.setDefaultTimeout(TIMEOUT_MS);
  t.after(async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  });
  return visit(context.pages()[0] ?? (await context.newPage()));
}

export async function picture(page, name) {
  await page.screenshot({ path: join(process.env.HOLM_SCREENSHOTS, `${name}.png`), fullPage: true });
}

/// Fills in the form that a page shows to visitors who are not signed in.
export async function signIn(page, password = process.env.HOLM_PASSWORD) {
  await page.getByLabel("Email").fill(process.env.HOLM_EMAIL);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

/// Calls the token endpoint.
export async function token(body) {
  const answer = await fetch(`${server}/v0/oauth/token`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: answer.status, body: await answer.json() };
}

/// Returns whether the management API accepts a bearer token.
export async function works(bearer) {
  const answer = await fetch(`${server}/v0/workspaces`, { headers: { Authorization: `Bearer ${bearer}` } });
  assert.ok([200, 401].includes(answer.status));
  return answer.status === 200;
}
