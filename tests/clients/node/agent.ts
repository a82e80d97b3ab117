// A small agent in TypeScript with the sidecar at its side. Where the sidecar is down, slow or refuses, it goes on with
// its last trimmed prompt and the messages since, and counts that.
//
//     node dist/agent.js TARGET LOG [SECONDS]
//
// TARGET is 127.0.0.1:7717 or unix:///path, LOG the file that its tool reads, SECONDS the deadline of each call.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./gen/service.js";
import type { RestoreSecretsResponse__Output } from "./gen/prompt_sidecar/v1/RestoreSecretsResponse.js";
import type { CallToolResponse__Output } from "./gen/prompt_sidecar/v1/CallToolResponse.js";
import type { ListToolsResponse__Output } from "./gen/prompt_sidecar/v1/ListToolsResponse.js";
import type { TrimPromptResponse__Output } from "./gen/prompt_sidecar/v1/TrimPromptResponse.js";

const [target = "127.0.0.1:7717", log = "log.txt", seconds = "2"] = process.argv.slice(2);
const BYTES = 64 << 20; // the sidecar's own bound; a client receives 4 MiB unless told

// How to reach the sidecar.
const loaded = loadSync("prompt_sidecar/v1/service.proto", { includeDirs: ["protos"], longs: String, enums: String, defaults: true });
const { SidecarService } = (grpc.loadPackageDefinition(loaded) as unknown as ProtoGrpcType).prompt_sidecar.v1;
const sidecar = new SidecarService(target, grpc.credentials.createInsecure(), {
  "grpc.max_send_message_length": BYTES,
  "grpc.max_receive_message_length": BYTES,
  "grpc.max_reconnect_backoff_ms": 1_000, // a sidecar that is back is used again within a second
  "grpc.enable_http_proxy": 0,
  "grpc.service_config": JSON.stringify({
    methodConfig: [{
      name: [{ service: "prompt_sidecar.v1.SidecarService" }],
      retryPolicy: {
        maxAttempts: 3, initialBackoff: "0.05s", maxBackoff: "0.5s", backoffMultiplier: 2,
        retryableStatusCodes: ["UNAVAILABLE"],
      },
    }],
  }),
});

// One call with a deadline for all its attempts.
type Done<Answer> = grpc.requestCallback<Answer>;
type Start<Answer> = (run: grpc.Metadata, options: grpc.CallOptions, done: Done<Answer>) => grpc.ClientUnaryCall;
function ask<Answer>(start: Start<Answer>): Promise<Answer> {
  const run = new grpc.Metadata();
  run.set("x-prompt-sidecar-run", runId); // by which a load balancer keeps the run with one sidecar
  const options = { deadline: Date.now() + Number(seconds) * 1_000 };
  return new Promise((resolve, reject) => start(run, options, (error, answer) => (answer ? resolve(answer) : reject(error))));
}

interface Call { id: string; type: "function"; function: { name: string; arguments: string } }
interface Message { role: string; content: string | null; tool_calls?: Call[]; tool_call_id?: string }

// Stands in for the provider: it reads twelve days of the log, recalls what the first label in its prompt stands for,
// and is done.
function model(body: string, turn: number): Message {
  const id = /content \w+ — id=(\w+)/.exec(body)?.[1];
  const call = (name: string, input: object): Message => ({
    role: "assistant",
    content: null,
    tool_calls: [{ id: `call_${turn}`, type: "function", function: { name, arguments: JSON.stringify(input) } }],
  });
  if (turn <= 12) return call("read_log", { day: turn });
  if (turn === 13 && id) return call("recall_elided_content", { id });
  return { role: "assistant", content: "I have read all twelve days." };
}

// The agent's own tool.
const readLog = (input: string): string => `Log of day ${JSON.parse(input).day}\n${readFileSync(log, "utf8")}`;
const parameters = { type: "object", properties: { day: { type: "integer" } }, required: ["day"] };
const ownTools = [{ type: "function", function: { name: "read_log", description: "Read a day's log.", parameters } }];

const runId = randomUUID();
const messages: Message[] = [{ role: "user", content: "What happened in these twelve days?" }];
let sent: Message[] = [], seen = 0; // the last trimmed prompt's messages, and how many of the agent's it stands for
let revision: Buffer = Buffer.alloc(0);
let tokens: number | undefined; // of the newest prompt, if it was trimmed
let iterations = 0, trimmed = 0, untrimmed = 0, recalled = false, finished = false;

// The sidecar's tools, beside the agent's own.
const sidecarTools = await ask<ListToolsResponse__Output>((...rest) =>
  sidecar.listTools({ format: "FORMAT_OPENAI_CHAT" }, ...rest),
).then(
  (answer) => JSON.parse(answer.toolsJson.toString()) as typeof ownTools,
  () => [], // no sidecar, no recall: the run goes on without
);
const isSidecars = new Set(sidecarTools.map((tool) => tool.function.name));

// What to send to the model: the trimmed prompt; without the sidecar the last one, and the messages since. The whole
// untrimmed history would soon be more than the model takes.
async function trim(body: string): Promise<string> {
  try {
    const request = {
      runId,
      json: { format: "FORMAT_OPENAI_CHAT", body: Buffer.from(body) } as const,
      contextWindow: 16_000,
      outputReserve: 1_000,
      recallUnavailable: sidecarTools.length === 0,
      revision, // a restarted sidecar, or another replica, makes the same edits by it
      acceptBytes: BYTES,
    };
    const answer = await ask<TrimPromptResponse__Output>((...rest) => sidecar.trimPrompt(request, ...rest));
    revision = answer.revision;
    tokens = answer.tokens?.after;
    trimmed += 1;
    console.log(`iteration ${iterations}: trimmed`);
    const prompt = answer.jsonBody!.toString();
    [sent, seen] = [JSON.parse(prompt).messages, messages.length];
    return prompt;
  } catch (error) {
    // A ceiling or the guard refused it: no model may get this prompt.
    if ((error as grpc.ServiceError).code === grpc.status.FAILED_PRECONDITION) throw error;
    tokens = undefined;
    untrimmed += 1; // in a real agent: a metric with an alert
    console.log(`iteration ${iterations}: untrimmed (${grpc.status[(error as grpc.ServiceError).code]})`);
    return JSON.stringify({ ...JSON.parse(body), messages: [...sent, ...messages.slice(seen)] });
  }
}

// Tells what the provider counted.
async function report(): Promise<void> {
  if (tokens === undefined) return;
  const request = { runId, revision, inputTokens: tokens }; // a real agent: the usage in the provider's answer
  await ask((...rest) => sidecar.reportUsage(request, ...rest)).catch(() => undefined);
}

// The arguments with values in place of masks, for this tool alone: the history keeps the call as the model wrote it.
async function restored(tool: string, input: string): Promise<string> {
  if (!/⟦|\\u27e6|%E2%9F%A6/i.test(input)) return input;
  const request = { runId, calls: [{ tool, arguments: Buffer.from(input) }] };
  return ask<RestoreSecretsResponse__Output>((...rest) => sidecar.restoreSecrets(request, ...rest)).then(
    (answer) => answer.calls[0]!.arguments.toString(),
    () => input, // a mask reveals nothing
  );
}

// Runs the tool that the model chose.
async function callTool(call: Call): Promise<string> {
  const { name, arguments: input } = call.function;
  if (!isSidecars.has(name)) return readLog(await restored(name, input));
  try {
    const request = { runId, name, argumentsJson: input, requestId: randomUUID() }; // a retry changes nothing twice
    const answer = await ask<CallToolResponse__Output>((...rest) => sidecar.callTool(request, ...rest));
    recalled ||= answer.recalled?.outcome === "RETRIEVE_OUTCOME_HIT" && answer.content.includes("Log of day 1\n");
    return answer.content; // unchanged: it carries a tag by which the sidecar knows it later
  } catch {
    return "This tool does not answer now. Go on without it.";
  }
}

while (!finished) {
  iterations += 1;
  const body = JSON.stringify({ model: "gpt-4o", tools: [...ownTools, ...sidecarTools], messages });
  const answer = model(await trim(body), iterations);
  await report();
  messages.push(answer); // the agent's own history stays untrimmed
  for (const call of answer.tool_calls ?? [])
    messages.push({ role: "tool", tool_call_id: call.id, content: await callTool(call) });
  finished = !answer.tool_calls;
}
await ask((...rest) => sidecar.endRun({ runId }, ...rest)).catch(() => undefined); // or the run is forgotten with its time to live
sidecar.close();
console.log(JSON.stringify({ iterations, trimmed, untrimmed, recalled, finished }));
