// The AI SDK: a text with a tool, as its first page shows it, by one of its providers.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { MODEL, TASK, WAY, readLog, tell } from "./common.mjs";

// Its base URLs end with the version of the API, also where the variables of the providers' own SDKs do not.
const models = {
  chat: () => createOpenAI({ baseURL: process.env.OPENAI_BASE_URL }).chat(MODEL),
  responses: () => createOpenAI({ baseURL: process.env.OPENAI_BASE_URL })(MODEL),
  anthropic: () => createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` })(MODEL),
  google: () =>
    createGoogleGenerativeAI({ baseURL: `${process.env.GOOGLE_GEMINI_BASE_URL}/v1beta`, apiKey: process.env.GOOGLE_API_KEY })(MODEL),
};
const schema = { type: "object", properties: { number: { type: "integer" } }, required: ["number"] };
const readLogTool = tool({
  description: "Read the log of a build.",
  inputSchema: jsonSchema(schema),
  execute: ({ number }) => readLog(number),
});
const result = await generateText({
  model: models[WAY](),
  prompt: TASK,
  tools: { read_log: readLogTool },
  stopWhen: stepCountIs(100),
});
tell(result.text, result.response.messages);
