// Asks through the SDK's stream helper and prints, as JSON, what its user gets.
//   node ask.mjs '{"baseURL": ..., "apiKey": ..., "body": {...}, "abortAfter": null}'
import OpenAI from "openai";

const { baseURL, apiKey, body, abortAfter } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const seen = { chunks: 0, deltas: [], completion: null, usage: null, error: null };

const stream = client.chat.completions.stream(body);
stream.on("content", (delta) => seen.deltas.push(delta));
stream.on("chunk", () => {
  seen.chunks += 1;
  if (seen.chunks === abortAfter) stream.abort();
});
try {
  seen.completion = await stream.finalChatCompletion();
  seen.usage = await stream.totalUsage();
} catch (error) {
  const { status, code, param, message } = error;
  seen.error = { name: error.constructor.name, status, code, param, message };
}
console.log(JSON.stringify(seen));
