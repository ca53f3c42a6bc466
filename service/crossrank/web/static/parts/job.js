// The summary of the job that is looked at, shared by the header and the views: asked for once, again on news.

/** {summary(): promise, follow(job, attempt), refresh(), onChange(listener)}. */
export function openToJob(api) {
  let name = null;
  let attempt;
  const listeners = new Set();
  const ask = () => (name === null ? Promise.resolve(null) : api.get(api.jobPath(name, '', { attempt })));
  const tell = async () => {
    const asked = name;
    const answer = await ask().catch(() => null);
    if (asked === name) listeners.forEach((listener) => listener(answer));
  };
  return {
    summary: ask,
    /** The job and attempt that are looked at from now on. */
    follow(job, chosen) {
      if (job === name && chosen === attempt) return;
      name = job;
      attempt = chosen;
      tell();
    },
    refresh: tell,
    onChange: (listener) => listeners.add(listener),
  };
}
