// Drives `prism --mode rpc` from Node: node rpc_client.mjs PROMPT COMMAND [ARGUMENT…]
import { spawn } from "node:child_process";

const [prompt, command, ...args] = process.argv.slice(2);
const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const send = (request) => server.stdin.write(JSON.stringify(request) + "\n");

let rest = "";
server.stdout.setEncoding("utf8").on("data", (data) => {
  const lines = (rest + data).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const { id, event, ok, result, error } = JSON.parse(line);
    if (event?.type === "message_delta") process.stdout.write(event.content.text ?? "");
    if (event?.type === "tool_approval_requested")
      send({ id: event.approvalId, command: "approve", params: { approvalId: event.approvalId, decision: "allowed" } });
    if (id === 1 && ok !== undefined) server.stdin.end(console.log(ok ? `\n[${result.status}]` : error.message));
  }
});
server.on("close", (status) => (process.exitCode = status));
send({ id: 1, command: "prompt", params: { input: prompt } });
