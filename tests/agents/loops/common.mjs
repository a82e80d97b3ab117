// What the loops in Node share: their task and their tool. See common.py.
import { appendFileSync, writeFileSync } from "node:fs";

export const TASK = "Read the logs of all builds, one after another.";
export const MODEL = "scripted";
export const WAY = process.argv[2] ?? "";

export function readLog(number) {
  appendFileSync("ran.txt", `${number}\n`);
  const line = (each) => `step ${number} line ${each} value ${number * 7919 + each * 104729}`;
  return Array.from({ length: 120 }, (_, index) => line(index + 1)).join("\n");
}

export function tell(answer, history) {
  writeFileSync("history.txt", JSON.stringify(history));
  console.log(JSON.stringify({ answer }));
}
