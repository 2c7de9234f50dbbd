// Signing in and the authorization code flow, in a browser without JavaScript.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";
import { browse, picture, server, signIn, token, works } from "./support.mjs";

/// Starts a program on this computer that waits for the browser to come back to it.
async function loopback(t) {
  const arrived = [];
  const listener = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://127.0.0.1");
    // Browsers also ask for an icon.
    if (pathname === "/callback") arrived.push(searchParams);
    response.end("You can close this page.");
  });
  await new Promise((ready) => listener.listen(0, "127.0.0.1", ready));
  t.after(() => { listener.closeAllConnections(); listener.close(); });
  return { arrived, redirect_uri: `http://127.0.0.1:${listener.address().port}/callback` };
}

/// Registers a program, and returns the address that it asks the browser to open.
async function asking(redirect_uri) {
  const answer = await fetch(`${server}/v0/oauth/clients`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.HOLM_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({ name: "Editor", redirect_uris: [redirect_uri] }),
  });
  const { client_id } = await answer.json();
  const verifier = randomBytes(32).toString("base64url");
  const query = new URLSearchParams({
    response_type: "code", client_id, redirect_uri, state: "s-1", scope: "offline_access", code_challenge_method: "S256",
    code_challenge: createHash("sha256").update(verifier).digest("base64url"),
  });
  return { client_id, verifier, address: `${server}/oauth/authorize?${query}` };
}

test("only the right password signs in", async (t) => {
  await browse(t, {}, async (page) => {
    await page.goto(`${server}/oauth/sign-in`);
    await picture(page, "sign-in");
    await signIn(page, "not-the-password");
    await page.getByRole("alert").waitFor();
    await picture(page, "sign-in-wrong");
    await signIn(page);
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    await picture(page, "signed-in");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.goto(`${server}/oauth/sign-in`);
    await page.getByLabel("Password").waitFor();
  });
});

test("a program gets a token after consent, by a code that works once", async (t) => {
  const { arrived, redirect_uri } = await loopback(t);
  const { client_id, verifier, address } = await asking(redirect_uri);
  await browse(t, {}, async (page) => {
    await page.goto(address);
    await signIn(page);
    await page.getByRole("button", { name: "Allow", exact: true }).waitFor();
    await picture(page, "consent");
    await page.getByRole("button", { name: "Allow", exact: true }).click();
    await page.getByText("You can close this page.").waitFor();
  });
  const [answer] = arrived;
  assert.equal(answer.get("state"), "s-1");
  assert.equal(answer.get("iss"), server);
  const exchange = { grant_type: "authorization_code", client_id, redirect_uri, code: answer.get("code") };
  assert.equal((await token({ ...exchange, code_verifier: "x".repeat(43) })).status, 400);

  const second = await browse(t, {}, async (page) => {
    await page.goto(address);
    await signIn(page);
    await page.getByRole("button", { name: "Allow", exact: true }).click();
    await page.getByText("You can close this page.").waitFor();
    return arrived[1].get("code");
  });
  const right = { ...exchange, code: second, code_verifier: verifier };
  const { status, body } = await token(right);
  assert.equal(status, 200, JSON.stringify(body));
  assert.ok(await works(body.access_token));
  assert.equal((await token(right)).status, 400);
  assert.equal(await works(body.access_token), false, "a code that comes twice ends what it gave");
});

test("a refusal goes back to the program without a code", async (t) => {
  const { arrived, redirect_uri } = await loopback(t);
  const { address } = await asking(redirect_uri);
  await browse(t, {}, async (page) => {
    await page.goto(address);
    await signIn(page);
    await page.getByRole("button", { name: "Do not allow" }).click();
    await page.getByText("You can close this page.").waitFor();
  });
  assert.equal(arrived[0].get("error"), "access_denied");
  assert.equal(arrived[0].get("code"), null);
});

test("a program with another redirect is refused on the spot", async (t) => {
  const { redirect_uri } = await loopback(t);
  const { address } = await asking(redirect_uri);
  await browse(t, { colorScheme: "dark" }, async (page) => {
    const wrong = address.replace("callback", "elsewhere");
    await page.goto(wrong);
    await page.getByRole("alert").waitFor();
    await picture(page, "refused-dark");
    assert.equal(new URL(page.url()).origin, server);
  });
});
