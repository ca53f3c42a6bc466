// Asks for a token when the service wants one. It is kept in this tab only (session storage) and sent as a Bearer header.

import { h } from './dom.js';

const KEY = 'crossrank.token';
let asking = null;
let memory = null;

/** The token of this tab, or null. */
export function storedToken() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

function store(token) {
  memory = token;
  try {
    if (token === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  } catch { /* kept in memory then */ }
}

/** Forgets the token of this tab. */
export function forgetToken() {
  store(null);
}

/** Resolves once the user gave another token than the refused one. All who ask at a time share one form. */
export function askForToken(refused) {
  if (storedToken() !== refused) return Promise.resolve();
  asking ??= showForm(refused !== null).finally(() => { asking = null; });
  return asking;
}

function showForm(wasRefused) {
  return new Promise((resolve) => {
    const input = h('input', {
      id: 'token', name: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true,
      'aria-describedby': 'token-help',
    });
    const dialog = h('dialog', { id: 'token-dialog', 'data-test': 'token-dialog', 'aria-labelledby': 'token-title' },
      h('form', {
        on: {
          submit(event) {
            event.preventDefault();
            store(input.value.trim());
            dialog.close();
            dialog.remove();
            resolve();
          },
        },
      },
      h('h2', { id: 'token-title' }, 'This service asks for a token'),
      wasRefused && h('p', { class: 'notice bad', role: 'alert' }, 'The service did not accept that token: it is unknown, expired, or was taken back.'),
      h('p', { id: 'token-help' }, 'Paste one with the scope ', h('code', {}, 'read'), '. Whoever runs the service makes one with ',
        h('code', {}, 'crossrank token create'), '. It is kept in this tab only and forgotten when you close it.'),
      h('label', { for: 'token' }, 'Token'),
      input,
      h('p', { class: 'actions' }, h('button', { type: 'submit', class: 'primary', 'data-test': 'token-submit' }, 'Use this token'))));
    dialog.addEventListener('cancel', (event) => event.preventDefault()); // nothing can be shown without one
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
