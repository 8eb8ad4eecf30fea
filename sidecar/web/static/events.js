// Server-sent events over fetch: EventSource cannot send the token.

const RETRY_MS = 2000;
const LOST = "the sidecar does not answer; trying again";

export class Unauthorized extends Error {}

export function parseEvent(block) {
  const event = { name: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}

export const authorize = (token) => (token ? { Authorization: `Bearer ${token}` } : {});

// Returns whether there was an event.
async function readStream(response, handle) {
  let seen = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return seen;
    if (!value.includes("\n") && parts.length) {
      parts.push(value); // of a long snapshot: joined once
      continue;
    }
    const blocks = (parts.join("") + value).split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const event = parseEvent(block);
      if (!event.data) continue;
      seen = true;
      handle(event.name, JSON.parse(event.data));
    }
  }
}

// Calls `handle(name, data)` for each event, for ever; `report(text)` tells whether it is connected, and
// `explain()` why the sidecar has no events.
export async function follow(path, token, handle, report, explain) {
  for (;;) {
    try {
      const response = await fetch(path, { headers: authorize(token), cache: "no-store" });
      if (response.status === 401) throw new Unauthorized();
      const seen = response.ok && await readStream(response, (name, data) => {
        report("");
        handle(name, data);
      });
      report(seen ? LOST : await explain());
    } catch (error) {
      if (error instanceof Unauthorized) throw error;
      report(LOST);
    }
    await new Promise((resume) => setTimeout(resume, RETRY_MS));
  }
}
