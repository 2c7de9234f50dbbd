// An agent: answers `{"inputs": "…"}` with text, piece by piece.
const http = require("node:http");

// Replace this with what your agent does. Each piece is sent as soon as it is there.
async function* answer(inputs, thread) {
  yield "You said: ";
  for (const word of String(inputs).split(/\s+/)) yield word + " ";
  yield "\n";
}

const server = http.createServer(async (request, response) => {
  let body = "";
  request.setEncoding("utf8");
  for await (const piece of request) body += piece;
  let inputs;
  try {
    const given = JSON.parse(body || "{}");
    if (typeof given !== "object" || Array.isArray(given)) throw new TypeError("no object");
    inputs = given.inputs ?? "";
  } catch {
    response.writeHead(400).end("the body must be a JSON object\n");
    return;
  }
  response.writeHead(200, { "Content-Type": "text/plain; charset=utf-8" });
  for await (const piece of answer(inputs, request.headers["x-blaxel-thread-id"])) response.write(piece);
  response.end();
});

server.listen(Number(process.env.PORT ?? 1338), process.env.HOST ?? "127.0.0.1");
