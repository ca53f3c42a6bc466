// The one door to the service: tokens, errors in words, exact large integers, and no question asked twice at a time.

import { askForToken, storedToken } from './token.js';

const CACHE_ENTRIES = 200;

/** A refusal or a failure, in words. status 0: the service did not answer. */
export class ApiError extends Error {
  constructor(status, code, message, detail = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

/** JSON with whole numbers beyond 2^53 as BigInt where the browser gives their source text (else rounded, to 256 ns at most). */
export function parseExact(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value);
}

/** later - earlier in ns, as a Number: exact for BigInt stamps. */
export function sinceNs(later, earlier) {
  return Number(BigInt(later) - BigInt(earlier));
}

/** The address of a job's answer: `jobPath('demo', 'steps', {from: 8})`. Slashes of the name are encoded too: `a/live` is a job. */
export function jobPath(job, part = '', query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = pairs.length ? `?${new URLSearchParams(pairs.map(([key, value]) => [key, String(value)]))}` : '';
  return `/v1/jobs/${encodeURIComponent(job)}${part ? `/${part}` : ''}${search}`;
}

/** The service as seen from the page: {get, post, open, forget, base}. */
export function openApi() {
  const cache = new Map();

  async function open(path, options = {}) {
    const headers = new Headers(options.headers);
    const token = storedToken();
    if (token) headers.set('Authorization', `Bearer ${token}`);
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit' });
    } catch (fault) {
      if (fault.name === 'AbortError') throw fault;
      throw new ApiError(0, 'unreachable', 'The service does not answer.');
    }
    if (response.status === 401) {
      await askForToken(token);
      return open(path, options);
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  async function ask(path, options, exact) {
    const response = await open(path, options);
    const text = await response.text();
    return exact ? parseExact(text) : JSON.parse(text);
  }

  return {
    open,
    /** A parsed answer. Answers are kept until forget(). exact: large integers as BigInt. */
    get(path, { exact = true, signal } = {}) {
      if (signal) return ask(path, { signal }, exact);
      if (!cache.has(path)) {
        if (cache.size >= CACHE_ENTRIES) cache.delete(cache.keys().next().value);
        const answer = ask(path, {}, exact);
        cache.set(path, answer);
        answer.catch(() => cache.get(path) === answer && cache.delete(path));
      }
      return cache.get(path);
    },
    post(path, body) {
      return ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }, true);
    },
    /** The job has changed: answers are asked for again. */
    forget: () => cache.clear(),
    jobPath,
  };
}

async function refusal(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, error.message, error.detail ?? {});
  } catch {
    return new ApiError(response.status, 'unknown', `The service answered ${response.status} without saying why.`);
  }
}
