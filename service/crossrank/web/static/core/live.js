// Server-sent events read through fetch, so that a token can travel in a header. Reconnects by itself, more slowly each time.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;

/**
 * Follows `path` until stopped. onMessage({event, data}) for each message (data parsed when it is JSON);
 * onState('live' | 'waiting' | 'absent'). Returns a function that stops.
 */
export function follow(api, path, onMessage, onState) {
  const control = new AbortController();
  let wait = FIRST_WAIT_MS;

  async function run() {
    while (!control.signal.aborted) {
      try {
        const response = await api.open(path, { signal: control.signal, headers: { Accept: 'text/event-stream' } });
        onState('live');
        for await (const message of messages(response.body)) {
          wait = FIRST_WAIT_MS;
          onMessage(message);
        }
      } catch (fault) {
        if (control.signal.aborted) return;
        if (fault.status === 404 || fault.status === 405) {
          onState('absent');
          return;
        }
      }
      if (control.signal.aborted) return;
      onState('waiting');
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }
  run();
  return () => control.abort();
}

/** The messages of an event stream. Blank line ends one; comment lines are left out. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const message = parseMessage(block);
      if (message) yield message;
    }
  }
}

function parseMessage(block) {
  let event = 'message';
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  if (data.length === 0) return null;
  const text = data.join('\n');
  try {
    return { event, data: JSON.parse(text) };
  } catch {
    return { event, data: text };
  }
}
