// An agent of Mastra, with a model of its router at another base URL.
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { MODEL, TASK, readLog, tell } from "./common.mjs";

const readLogTool = createTool({
  id: "read_log",
  description: "Read the log of a build.",
  inputSchema: z.object({ number: z.number() }),
  execute: async (input) => readLog(input.number ?? input.context.number),
});
const agent = new Agent({
  id: "reader",
  name: "reader",
  instructions: "You read logs.",
  model: { id: `openai/${MODEL}`, url: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
  tools: { read_log: readLogTool },
});
const result = await agent.generate(TASK, { maxSteps: 100 });
tell(result.text, result.response?.messages ?? []);
