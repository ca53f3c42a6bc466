// Hands on the canvas: wheel, drag, pinch and keys become pan, zoom and choice. It decides nothing about what is drawn.

import { AXIS_PX, GUTTER_PX } from './view.js';

const CLICK_PX = 4;
const WHEEL_ZOOM = 0.0016;
const KEY_PAN = 0.12;
const KEY_ZOOM = 0.75;

/** Listens on a canvas. acts: {moved, click(x, y), hover(x, y), leave, next(sign), nextRow(sign), open, cancel, search}. */
export function listen(canvas, view, acts) {
  const pointers = new Map();
  let drag = null;

  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? view.height : 1;
    const { x } = place(event);
    if (event.ctrlKey || event.metaKey || (!event.shiftKey && x > GUTTER_PX && event.deltaX === 0 && !event.altKey)) {
      view.zoom(Math.exp(event.deltaY * unit * WHEEL_ZOOM), Math.max(x, GUTTER_PX));
    } else if (event.shiftKey && event.deltaX === 0) view.pan(event.deltaY * unit, 0);
    else view.pan(event.deltaX * unit, event.deltaY * unit);
    acts.moved();
  }, { passive: false });

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    drag = { from: place(event), moved: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      acts.hover(now.x, now.y);
      return;
    }
    if (pointers.size === 2) pinch(event.pointerId, before, now);
    else {
      if (!drag.moved && Math.hypot(now.x - drag.from.x, now.y - drag.from.y) < CLICK_PX) return;
      drag.moved = true;
      canvas.classList.add('dragging');
      view.pan(before.x - now.x, before.y - now.y);
    }
    pointers.set(event.pointerId, now);
    acts.moved();
  });
  const end = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    canvas.classList.remove('dragging');
    if (event.type === 'pointerup' && drag && !drag.moved) acts.click(drag.from.x, drag.from.y);
    drag = null;
  };
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('pointerleave', () => acts.leave());
  canvas.addEventListener('dblclick', (event) => {
    const { x, y } = place(event);
    if (y > AXIS_PX) view.zoom(0.5, x);
    acts.moved();
  });
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (act(event)) event.preventDefault();
  });

  function pinch(id, before, now) {
    const other = [...pointers].find(([key]) => key !== id)[1];
    const was = Math.abs(before.x - other.x);
    const is = Math.abs(now.x - other.x);
    if (was > 10 && is > 10) view.zoom(was / is, (now.x + other.x) / 2);
    drag.moved = true;
  }

  function act(event) {
    const wide = view.plotPx * KEY_PAN * (event.shiftKey ? 4 : 1);
    const moves = {
      a: () => view.pan(-wide), d: () => view.pan(wide), arrowleft: () => view.pan(-wide), arrowright: () => view.pan(wide),
      w: () => view.zoom(KEY_ZOOM), s: () => view.zoom(1 / KEY_ZOOM), '+': () => view.zoom(KEY_ZOOM), '=': () => view.zoom(KEY_ZOOM),
      '-': () => view.zoom(1 / KEY_ZOOM), _: () => view.zoom(1 / KEY_ZOOM), 0: () => view.showAll(),
      home: () => { view.showAll(); view.top = 0; }, end: () => view.pan(0, Infinity),
      arrowup: () => view.pan(0, -view.rowPx * (event.shiftKey ? 8 : 2)), arrowdown: () => view.pan(0, view.rowPx * (event.shiftKey ? 8 : 2)),
      pageup: () => view.pan(0, AXIS_PX - view.height), pagedown: () => view.pan(0, view.height - AXIS_PX),
    };
    const choices = {
      '.': () => acts.next(1), n: () => acts.next(1), ',': () => acts.next(-1), p: () => acts.next(-1),
      j: () => acts.nextRow(1), k: () => acts.nextRow(-1), enter: acts.open, ' ': acts.open, escape: acts.cancel, '/': acts.search,
    };
    const key = event.key.toLowerCase();
    if (moves[key]) {
      moves[key]();
      acts.moved();
    } else if (choices[key]) choices[key]();
    else return false;
    return true;
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
}
