// An agent on a provider's official SDK, which knows nothing of the sidecar but a base URL.
// Usage: node agent.mjs FORMAT STREAM, with OPENAI_BASE_URL or ANTHROPIC_BASE_URL. Prints its history as JSON.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [format, stream] = [process.argv[2], process.argv[3] === "true"];
const [model, name, parameters] = ["scripted", "read_log", { type: "object", properties: {} }];
const history = [{ role: "user", content: "Which build failed?" }];
const lines = Array.from({ length: 120 }, (_, line) => `request ${line} took ${(line * 7919) % 10_007} ms\n`);
const log = (id) => `The log of ${id}:\n${lines.join("")}`;

const asks = {
  async openai_chat() {
    const completions = new OpenAI().chat.completions;
    const body = { model, messages: history, tools: [{ type: "function", function: { name, parameters } }] };
    const made = stream
      ? await completions.stream(body).finalChatCompletion()
      : await completions.create(body);
    const { message } = made.choices[0];
    const calls = message.tool_calls ?? [];
    history.push({ role: "assistant", content: message.content, ...(calls.length && { tool_calls: calls }) });
    for (const { id } of calls) history.push({ role: "tool", tool_call_id: id, content: log(id) });
    return calls.length;
  },
  async openai_responses() {
    const { responses } = new OpenAI();
    const tools = [{ type: "function", name, parameters, strict: false }];
    const body = { model, input: history, tools, store: false };
    const made = stream ? await responses.stream(body).finalResponse() : await responses.create(body);
    const calls = made.output.filter((item) => item.type === "function_call");
    history.push(...made.output.map(({ parsed_arguments, ...item }) => item));
    for (const { call_id } of calls) history.push({ type: "function_call_output", call_id, output: log(call_id) });
    return calls.length;
  },
  async anthropic_messages() {
    const { messages } = new Anthropic();
    const body = { model, max_tokens: 300, messages: history, tools: [{ name, input_schema: parameters }] };
    const made = stream ? await messages.stream(body).finalMessage() : await messages.create(body);
    const calls = made.content.filter((block) => block.type === "tool_use");
    history.push({ role: "assistant", content: made.content });
    const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: log(id) }));
    if (calls.length) history.push({ role: "user", content: results });
    return calls.length;
  },
};

while (await asks[format]());
console.log(JSON.stringify(history));
