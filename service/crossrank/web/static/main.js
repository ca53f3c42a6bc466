// Starts the page: one state (the address), one door (the api), one view at a time.

import { openApi } from './core/api.js';
import { h, replace } from './core/dom.js';
import { follow } from './core/live.js';
import { failure } from './core/load.js';
import { openState } from './core/state.js';
import { openKeys } from './parts/keys.js';
import { openShell, stateLink } from './parts/shell.js';
import { openToJob } from './parts/job.js';

const MODULES = {
  jobs: () => import('./views/jobs.js'),
  overview: () => import('./views/overview.js'),
  timeline: () => import('./views/timeline.js'),
  why: () => import('./views/why.js'),
  clocks: () => import('./views/clocks.js'),
  hang: () => import('./views/hang.js'),
  compare: () => import('./views/compare.js'),
  quality: () => import('./views/quality.js'),
};

const NEWS_EVERY_MS = 1000; // a busy job says more than anybody can read

const api = openApi();
const state = openState();
const main = document.getElementById('main');
const job = openToJob(api);
const context = { api, job, state: state.now, go: state.go, href: state.href };
const shell = openShell(document.getElementById('top'), context);
let shown = { key: null, view: null };
let stopFollowing = () => {};
let followed = null;
let lastNews = null;
let pending;
let spreadAt = -Infinity;

/** Draws what the address says: another view is mounted, the same one is told. */
async function show(now) {
  const id = now.job === undefined ? 'jobs' : now.view;
  const key = JSON.stringify([id, now.job, now.attempt]);
  job.follow(now.job ?? null, now.attempt);
  followJob(now);
  shell.update(now);
  document.title = [id === 'jobs' ? 'Jobs' : shell.titleOf(id), now.job, 'crossrank'].filter(Boolean).join(' · ');
  if (shown.key === key) {
    shown.view?.update(now);
    return;
  }
  shown.view?.destroy?.();
  const mine = { key, view: null };
  shown = mine;
  const host = h('div', { class: 'stack', 'data-view': id });
  replace(main, host);
  scrollTo(0, 0);
  try {
    const { mount } = await MODULES[id]();
    if (shown !== mine) return;
    mine.view = mount(host, context, state.now());
    if (now.job !== undefined) job.summary().catch((fault) => fault.status === 404 && shown === mine && sayAbsent(mine, host, fault));
  } catch (fault) {
    if (shown === mine) replace(host, failure(fault, 'this view', () => location.reload()));
  }
}

/** One message for a job that is not there, instead of one in each part of the view. */
function sayAbsent(mine, host, fault) {
  mine.view?.destroy?.();
  mine.view = null;
  host.className = 'stack';
  replace(host, failure(fault, 'this job', () => location.reload()),
    h('p', {}, stateLink(context, { job: null }, { 'data-test': 'to-jobs' }, 'All jobs')));
}

/** Follows the job of the address, or the list of jobs; on news the answers are asked for again where they are shown. */
function followJob(now) {
  const path = now.job === undefined ? '/v1/live' : api.jobPath(now.job, 'live');
  if (path === followed || document.hidden) return;
  followed = path;
  stopFollowing();
  lastNews = null;
  stopFollowing = follow(api, path, (message) => news(message), (live) => shell.live(live));
}

function news(message) {
  const text = JSON.stringify(message.data);
  if (message.event !== 'resumed' && text === lastNews) return;
  lastNews = text;
  clearTimeout(pending);
  pending = setTimeout(() => spread(message), Math.max(0, spreadAt + NEWS_EVERY_MS - performance.now()));
}

function spread(message) {
  if (document.hidden) return;
  spreadAt = performance.now();
  api.forget();
  job.refresh(message);
  shown.view?.refresh?.(state.now(), message);
}

// A browser has six connections to a service. A page that nobody sees (another tab, or kept for the back button) gives its own back.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    stopFollowing();
    followed = null;
  } else {
    followJob(state.now());
    news({ event: 'resumed', data: null });
  }
});
state.onChange(show);
openKeys(context);
show(state.now());
