// An agent on the AI SDK, for the tests: node agent.mjs WORDS, where WORDS say in JSON how to run.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { sidecarFor } from "./sidecar.mjs";

const words = JSON.parse(process.argv[2]);
const settings = { baseURL: `${words.upstream}/v1`, apiKey: "none" };
const models = {
  openai_chat: () => createOpenAI(settings).chat("scripted"),
  openai_responses: () => createOpenAI(settings).responses("scripted"),
  anthropic_messages: () => createAnthropic(settings)("scripted"),
};
const schema = { type: "object", properties: { number: { type: "integer" } }, required: ["number"] };
const log = (number) =>
  `the build number of iteration ${number} is ${number * 7919}\n` +
  `log line of iteration ${number}: nothing happened\n`.repeat(50);

const system = "You read logs.";
const { sidecar: target, protos, seconds, window: contextWindow } = words;
const sidecar = await sidecarFor("run", { target, protos, system, seconds, contextWindow, outputReserve: 500 });
const readLog = tool({
  description: "Read the log of a build.",
  inputSchema: jsonSchema(schema),
  execute: ({ number }) => log(number),
});
const got = {};
const keeping = (name, property) =>
  tool({
    description: "Keep what it is given.",
    inputSchema: jsonSchema({ type: "object", properties: { [property]: { type: "string" } } }),
    execute: (input) => ((got[name] = input[property]), "Kept."),
  });
const masked = { deploy: keeping("deploy", "token"), show: keeping("show", "text") };
const asked = {
  model: models[words.api](),
  system,
  prompt: words.question ?? "Which build failed?",
  tools: { read_log: readLog, ...(words.question && sidecar.restoring(masked)), ...sidecar.tools },
  stopWhen: stepCountIs(100),
  maxRetries: 0,
  prepareStep: (step) => sidecar.prepareStep(step),
  onStepFinish: (step) => sidecar.onStepFinish(step),
};

let [answer, messages, pieces] = ["", [], 0];
if (words.stream) {
  const result = streamText({ ...asked, onError: ({ error }) => { throw error; } });
  for await (const piece of result.textStream) pieces += piece.length > 0;
  answer = await result.text;
  messages = (await result.response).messages;
} else {
  const result = await generateText(asked);
  [answer, messages] = [result.text, result.response.messages];
}
sidecar.close();
const tools = Object.keys(sidecar.tools).sort();
const held = JSON.stringify(messages);
const told = { answer, kept: held.length, pieces, untrimmed: sidecar.untrimmed, tools, got };
console.log(JSON.stringify(words.question ? { ...told, held } : told));
