// Reads a streamed answer. Knows the wire, not the page.

/** What the server said went wrong; `requestId` finds it in the server's log. */
export class Fault extends Error {
  constructor(message, { status = 0, code = "", requestId = "", retryAfterS = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId, retryAfterS });
  }
}

/** Asks, and yields each chunk as it comes. Throws a Fault, or AbortError when `signal` aborts. */
export async function* ask(messages, key, signal) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const body = JSON.stringify({ model: "groundswell", messages, stream: true, groundswell: { progress: true } });
  let response;
  try {
    response = await fetch("v1/chat/completions", { method: "POST", headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("The service cannot be reached.", { code: "unreachable" });
  }
  const requestId = response.headers.get("x-request-id") ?? "";
  if (!response.ok) throw await refusal(response, requestId);
  try {
    yield* chunks(response.body, requestId);
  } catch (error) {
    if (error instanceof Fault || error.name === "AbortError") throw error;
    throw new Fault("The connection broke off before the answer was complete.", { code: "broken_off", requestId });
  }
}

async function refusal(response, requestId) {
  const error = (await response.json().catch(() => ({}))).error ?? {};
  return new Fault(error.message ?? `The service answered ${response.status}.`, {
    status: response.status,
    code: error.code ?? "",
    requestId,
    retryAfterS: Number(response.headers.get("retry-after")) || 0,
  });
}

/** A stream that ends without [DONE] was cut: it must not pass for an answer. */
export async function* chunks(body, requestId) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Fault("The answer broke off.", { code: "broken_off", requestId });
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue; // a comment keeps the connection alive
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) {
          const retryAfterS = chunk.groundswell?.retry_after_s ?? 0;
          throw new Fault(chunk.error.message, { code: chunk.error.code ?? "", requestId, retryAfterS });
        }
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // nothing more is wanted; a broken stream cannot be cancelled
  }
}
