// The sidecar for an agent on the AI SDK: its prompts trimmed in `prepareStep`, its tools next to the agent's own.
import { randomUUID } from "node:crypto";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { dynamicTool, jsonSchema } from "ai";

const BYTES = 64 << 20; // the sidecar's own bound; a client receives 4 MiB unless told
const FORMAT = "FORMAT_AI_SDK";

export async function sidecarFor(runId, { target = "127.0.0.1:7717", protos = "protos", system = "", seconds = 2, ...options }) {
  const loaded = loadSync("prompt_sidecar/v1/service.proto", { includeDirs: [protos], longs: String, enums: String });
  const { SidecarService } = grpc.loadPackageDefinition(loaded).prompt_sidecar.v1;
  const client = new SidecarService(target, grpc.credentials.createInsecure(), {
    "grpc.max_send_message_length": BYTES,
    "grpc.max_receive_message_length": BYTES,
  });
  const ask = (method, request) =>
    new Promise((resolve, reject) => {
      const deadline = Date.now() + seconds * 1_000;
      client[method](request, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
    });

  const listed = await ask("listTools", { format: FORMAT }).catch(() => ({ tools: [] })); // no sidecar, no recall
  const tools = {};
  for (const { name, description, parametersJson } of listed.tools ?? []) {
    const inputSchema = jsonSchema(JSON.parse(parametersJson));
    const execute = async (input) => {
      const request = { runId, name, argumentsJson: JSON.stringify(input), requestId: randomUUID() };
      const failed = { content: "This tool cannot be reached right now. Go on without it, or try again later." };
      return (await ask("callTool", request).catch(() => failed)).content;
    };
    tools[name] = dynamicTool({ description, inputSchema, execute });
  }

  // A call's arguments with the values that the guard has masked, where `guard.restore` lets this tool have them.
  const restored = async (tool, input) => {
    const text = JSON.stringify(input);
    if (!/⟦|\\u27e6|%e2%9f%a6|\\342\\+237\\+246/i.test(text)) return input;
    const calls = [{ tool, arguments: Buffer.from(text) }];
    const answer = await ask("restoreSecrets", { runId, calls }).catch(() => ({ calls })); // no sidecar: masks stay
    return JSON.parse(answer.calls[0].arguments.toString());
  };

  let [sent, seen, revision, trimmed] = [{ system, messages: [] }, 0, undefined, false];
  return {
    tools,
    untrimmed: 0,
    // The agent's tools, each given values in place of masks; the history keeps the calls as the model wrote them.
    restoring: (theirs) =>
      Object.fromEntries(
        Object.entries(theirs).map(([name, { execute, ...tool }]) => {
          const run = async (input, options) => execute(await restored(name, input), options);
          return [name, execute ? { ...tool, execute: run } : tool];
        }),
      ),
    close: () => client.close(),

    // What the model is sent. Without the sidecar: the last trimmed prompt, and the messages since.
    async prepareStep({ messages }) {
      const body = Buffer.from(JSON.stringify({ ...(system && { system }), messages }));
      const recallUnavailable = Object.keys(tools).length === 0;
      const request = { runId, json: { format: FORMAT, body }, recallUnavailable, acceptBytes: BYTES, ...options };
      try {
        const answer = await ask("trimPrompt", { ...request, revision });
        sent = { system, ...JSON.parse(answer.jsonBody.toString()) };
        [seen, revision, trimmed] = [messages.length, answer.revision, true];
      } catch (error) {
        // A ceiling or the guard refused it: no model may get this prompt.
        if (error.code === grpc.status.FAILED_PRECONDITION) throw error;
        this.untrimmed += 1; // in a real agent: a metric with an alert
        sent = { ...sent, messages: [...sent.messages, ...messages.slice(seen)] };
        [seen, trimmed] = [messages.length, false];
      }
      return { ...(sent.system && { system: sent.system }), messages: sent.messages };
    },

    // What the provider counted, cached tokens included.
    async onStepFinish({ usage }) {
      if (!trimmed || !usage.inputTokens) return;
      const { inputTokens, outputTokens, inputTokenDetails } = usage;
      const counted = { inputTokens, outputTokens, cachedTokens: inputTokenDetails?.cacheReadTokens };
      const inputCounting = "INPUT_COUNTING_WITH_CACHED";
      await ask("reportUsage", { runId, revision, inputCounting, ...counted }).catch(() => undefined);
    },
  };
}
