// An MCP server of the older kind, which speaks over a WebSocket, with the transport of the
// published client.
import { BlaxelMcpServerTransport } from "@blaxel/core";
import { tools } from "./served.mjs";

await tools().connect(new BlaxelMcpServerTransport());
