// A small agent in TypeScript that reaches the sidecar with Connect. Where the sidecar is down, slow or refuses, it goes on
// with its last trimmed prompt and the messages since, and counts that.
//
//     node dist/agent.js TARGET LOG [SECONDS]
//
// TARGET is 127.0.0.1:7717 or unix:///path, LOG the file that its tool reads, SECONDS the deadline of each call.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import * as net from "node:net";
import { setTimeout } from "node:timers/promises";
import { type CallOptions, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { RetrieveOutcome } from "./gen/prompt_sidecar/v1/retrieve_pb.js";
import { SidecarService } from "./gen/prompt_sidecar/v1/service_pb.js";
import { Format } from "./gen/prompt_sidecar/v1/trim_pb.js";

const [target = "127.0.0.1:7717", log = "log.txt", seconds = "2"] = process.argv.slice(2);
const BYTES = 64 << 20; // the sidecar's own limit, in both directions

// How to reach the sidecar. It speaks gRPC, so the transport is Connect's for gRPC.
const path = target.startsWith("unix://") ? target.slice("unix://".length) : undefined;
const transport = createGrpcTransport({
  baseUrl: path ? "http://localhost" : `http://${target}`,
  nodeOptions: path ? { createConnection: () => net.connect(path) } : {},
  readMaxBytes: BYTES,
  writeMaxBytes: BYTES,
});
const sidecar = createClient(SidecarService, transport);

// One call, with a deadline for all its attempts. Connect does not retry by itself, and ends a call with Canceled where the
// process is killed.
async function ask<Answer>(start: (options: CallOptions) => Promise<Answer>): Promise<Answer> {
  const deadline = Date.now() + Number(seconds) * 1_000;
  for (let attempt = 1, pause = 50; ; attempt += 1, pause *= 2) {
    try {
      const headers = { "x-prompt-sidecar-run": runId }; // by which a load balancer keeps the run with one sidecar
      return await start({ timeoutMs: deadline - Date.now(), headers });
    } catch (error) {
      const lost = [Code.Unavailable, Code.Canceled].includes(ConnectError.from(error).code);
      if (!lost || attempt === 3 || Date.now() + pause >= deadline) throw error;
      await setTimeout(pause);
    }
  }
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

const text = new TextDecoder();
const runId = randomUUID();
const messages: Message[] = [{ role: "user", content: "What happened in these twelve days?" }];
let sent: Message[] = [], seen = 0; // the last trimmed prompt's messages, and how many of the agent's it stands for
let revision: Uint8Array = new Uint8Array();
let tokens: number | undefined; // of the newest prompt, if it was trimmed
let iterations = 0, trimmed = 0, untrimmed = 0, recalled = false, finished = false;

// The sidecar's tools, beside the agent's own.
const sidecarTools = await ask((options) => sidecar.listTools({ format: Format.OPENAI_CHAT }, options)).then(
  (answer) => JSON.parse(text.decode(answer.toolsJson)) as typeof ownTools,
  () => [], // no sidecar, no recall: the run goes on without
);
const isSidecars = new Set(sidecarTools.map((tool) => tool.function.name));

// What to send to the model: the trimmed prompt; without the sidecar the last one, and the messages since. The whole
// untrimmed history would soon be more than the model takes.
async function trim(body: string): Promise<string> {
  try {
    const request = {
      runId,
      prompt: { case: "json", value: { format: Format.OPENAI_CHAT, body: new TextEncoder().encode(body) } },
      contextWindow: 16_000,
      outputReserve: 1_000,
      recallUnavailable: sidecarTools.length === 0,
      revision, // a restarted sidecar, or another replica, makes the same edits by it
      acceptBytes: BYTES,
    } as const;
    const answer = await ask((options) => sidecar.trimPrompt(request, options));
    if (answer.prompt.case !== "jsonBody") throw new ConnectError("the answer holds no body", Code.Internal);
    revision = answer.revision;
    tokens = answer.tokens?.after;
    trimmed += 1;
    console.log(`iteration ${iterations}: trimmed`);
    const prompt = text.decode(answer.prompt.value);
    [sent, seen] = [JSON.parse(prompt).messages, messages.length];
    return prompt;
  } catch (error) {
    // A ceiling or the guard refused it: no model may get this prompt.
    if (ConnectError.from(error).code === Code.FailedPrecondition) throw error;
    tokens = undefined;
    untrimmed += 1; // in a real agent: a metric with an alert
    console.log(`iteration ${iterations}: untrimmed (${Code[ConnectError.from(error).code]})`);
    return JSON.stringify({ ...JSON.parse(body), messages: [...sent, ...messages.slice(seen)] });
  }
}

// Reports what the provider counted.
async function report(): Promise<void> {
  if (tokens === undefined) return;
  const request = { runId, revision, inputTokens: tokens }; // a real agent: the usage in the provider's answer
  await ask((options) => sidecar.reportUsage(request, options)).catch(() => undefined);
}

// The arguments with values in place of masks, for this tool alone: the history keeps the call as the model wrote it.
async function restored(tool: string, input: string): Promise<string> {
  if (!/⟦|\\u27e6|%E2%9F%A6/i.test(input)) return input;
  const request = { runId, calls: [{ tool, arguments: new TextEncoder().encode(input) }] };
  return ask((options) => sidecar.restoreSecrets(request, options)).then(
    (answer) => text.decode(answer.calls[0]!.arguments),
    () => input, // a mask reveals nothing
  );
}

// Runs the tool that the model chose.
async function callTool(call: Call): Promise<string> {
  const { name, arguments: input } = call.function;
  if (!isSidecars.has(name)) return readLog(await restored(name, input));
  try {
    const request = { runId, name, argumentsJson: input, requestId: randomUUID() }; // a retry changes nothing twice
    const answer = await ask((options) => sidecar.callTool(request, options));
    const hit = answer.result.case === "recalled" && answer.result.value.outcome === RetrieveOutcome.HIT;
    recalled ||= hit && answer.content.includes("Log of day 1\n");
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
await ask((options) => sidecar.endRun({ runId }, options)).catch(() => undefined); // or the run is forgotten with its time to live
console.log(JSON.stringify({ iterations, trimmed, untrimmed, recalled, finished }));
process.exit(); // Connect keeps its idle connection open
