// Elements from plain values. Text is always a text node, so a hostile name can be nothing but text.

/**
 * One element. attrs: `class`, `on` {event: handler}, `style` {property: value} (set through the object model, which a strict
 * content policy allows), `props` {property: value}; everything else is an attribute; null, undefined and false are left out.
 */
export function h(name, attrs = {}, ...children) {
  return fill(document.createElement(name), attrs, children);
}

/** One SVG element, by the same rules. */
export function svg(name, attrs = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attrs, children);
}

function fill(element, attrs, children) {
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'on') for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (key === 'style') for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (key === 'props') Object.assign(element, value);
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Puts children in the place of what is inside; the focus stays with the element of the same id or data-key. */
export function replace(host, ...children) {
  const active = document.activeElement;
  const inside = active && host.contains(active) ? active : null;
  const mark = inside && (inside.id ? `#${CSS.escape(inside.id)}` : inside.dataset.key && `[data-key="${CSS.escape(inside.dataset.key)}"]`);
  host.replaceChildren(...present(children));
  if (mark) host.querySelector(mark)?.focus({ preventScroll: true });
  return host;
}

/** Replaces the inside of host only when `value` (JSON-like) differs from what it was last painted with. */
export function paint(host, value, build) {
  const text = JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? `${item}n` : item));
  if (painted.get(host) === text) return false;
  painted.set(host, text);
  replace(host, build(value));
  return true;
}

/** Forgets what host was painted with. */
export function forget(host) {
  painted.delete(host);
}

const painted = new WeakMap();

/** Says something to screen readers. */
export function announce(text) {
  document.getElementById('announce').textContent = text;
}
