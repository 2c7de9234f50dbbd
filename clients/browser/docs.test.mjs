// The page of the management API.
import assert from "node:assert/strict";
import { test } from "node:test";
import { browse, picture, server } from "./support.mjs";

test("the API page lists every operation, and sends one by a button or a key", async (t) => {
  const { paths } = await (await fetch(`${server}/v0/openapi.json`)).json();
  const methods = ["get", "post", "put", "delete"];
  const count = Object.values(paths).flatMap((path) => Object.keys(path)).filter((key) => methods.includes(key)).length;
  await browse(t, { javaScriptEnabled: true }, async (page) => {
    const failures = [];
    page.on("pageerror", (error) => failures.push(String(error)));
    await page.goto(`${server}/v0/docs`);
    await page.locator("details").first().waitFor();
    assert.equal(await page.locator("details").count(), count);
    await page.getByLabel("API key or token").fill(process.env.HOLM_KEY);
    await page.getByLabel("Workspace").first().fill("main");
    await page.getByLabel("Find").fill("listlocations");
    await page.locator("details:visible summary").click();
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator("pre", { hasText: '"region": "local"' }).waitFor();
    await picture(page, "docs-sent");
    await page.getByLabel("Find").fill("createsandbox");
    await page.locator("details:visible summary").first().click();
    await page.locator("details:visible textarea").first().waitFor();
    await picture(page, "docs-create");
    await page.getByLabel("Find").fill("listagentrevisions");
    await page.locator("details:visible summary").click();
    const name = page.locator("details:visible form input");
    await name.fill("nobody");
    await name.press("Enter");
    await page.locator("pre:visible", { hasText: "there is no agent `nobody`" }).waitFor();
    assert.equal(await page.getByLabel("API key or token").inputValue(), process.env.HOLM_KEY);
    assert.deepEqual(failures, []);
  });
});
