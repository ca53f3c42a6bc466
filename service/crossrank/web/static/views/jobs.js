// All jobs: which run, which hang, how their steps went, and the worst that was found.

import { h } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { ago, count, duration } from '../core/words.js';
import { openFinding, targetOf } from '../parts/findings.js';
import { stateLink } from '../parts/shell.js';
import { spark } from '../parts/spark.js';

const STATES = { live: ['live', 'running'], hung: ['hung', 'hangs'], ended: ['', 'ended'] };

/** Mounts the view; see main.js for what views are. */
export function mount(host, context) {
  const list = h('div', { id: 'jobs', 'data-test': 'jobs' });
  host.append(h('h1', {}, 'Jobs'), h('section', { class: 'panel' }, list));
  const draw = () => load(list, async () => recent((await context.api.get('/v1/jobs')).jobs), (jobs) => table(context, jobs), { what: 'the jobs' });
  draw();
  return { update: draw, refresh: draw };
}

/** The order of the list: newest first. Only what is shown, so that nothing else repaints the list. */
function recent(jobs) {
  const now = Date.now() * 1e6;
  return jobs.toSorted((a, b) => Number(BigInt(b.last_received_ns) - BigInt(a.last_received_ns)))
    .map((job) => ({ ...job, last_received_ns: undefined, age: ago(now - Number(job.last_received_ns)) }));
}

function table(context, jobs) {
  if (jobs.length === 0) {
    return absent('No job has sent anything yet.',
      h('span', {}, 'Try it with ', h('code', {}, 'crossrank demo'), ', or point the OpenTelemetry exporters of your ranks at ',
        h('code', {}, `${location.origin}/v1/traces`), '. Jobs appear here within seconds.'));
  }
  return h('table', { class: 'jobs' },
    h('caption', { class: 'visually-hidden' }, 'Jobs, the newest first'),
    h('thead', {}, h('tr', {}, ['Job', 'State', 'Ranks', 'Steps', 'Step times', 'Most costly finding'].map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, jobs.map((job) => row(context, job))));
}

function row(context, job) {
  const [look, word] = STATES[job.state] ?? ['', 'not analysed yet'];
  const last = job.spark_ns?.findLast((value) => value !== null);
  return h('tr', { 'data-test': 'job-row', 'data-job': job.job },
    h('th', { scope: 'row' }, stateLink(context, { job: job.job }, { class: 'name', 'data-key': job.job }, job.job),
      job.attempts.length > 1 && h('div', { class: 'small quiet' }, `attempt ${job.attempts.at(-1)}`)),
    h('td', {}, h('span', { class: `pill ${look}` }, word), h('div', { class: 'small quiet' }, `last heard ${job.age}`)),
    h('td', {}, job.ranks_seen === undefined || job.ranks_seen === null ? '' : count(job.ranks_seen),
      job.ranks_missing > 0 && h('div', {}, h('span', { class: 'tag bad' }, `${count(job.ranks_missing)} missing`))),
    h('td', {}, job.steps === undefined || job.steps === null ? '' : count(job.steps)),
    h('td', {}, job.spark_ns && spark(job.spark_ns, `Step times of ${job.job}`), last && h('div', { class: 'small quiet' }, `last ${duration(last)}`)),
    h('td', { class: 'top' }, topFinding(context, job)));
}

function topFinding(context, job) {
  if ((job.version ?? null) === null) return h('span', { class: 'quiet' }, 'Open the job to have it analysed.');
  if (!job.top_finding) return h('span', { class: 'quiet' }, 'Nothing beyond noise and clock bounds.');
  const go = () => openFinding(context, job.top_finding, { job: job.job });
  return stateLink({ href: context.href, go }, { job: job.job, ...targetOf(job.top_finding) }, { 'data-test': 'top-finding', 'data-key': `top-${job.job}` }, job.top_finding.sentence);
}
