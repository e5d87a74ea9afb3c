// The console's script: theme, times, the form's parts, and live parts. Every page is readable without it.
(() => {
  'use strict';
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: system, light, dark.
  const themes = ['system', 'light', 'dark'];
  const button = document.getElementById('theme');
  const chosen = () => root.dataset.theme || 'system';
  const showTheme = () => { if (button) button.textContent = `Theme: ${chosen()}`; };
  if (button) {
    showTheme();
    button.addEventListener('click', () => {
      const next = themes[(themes.indexOf(chosen()) + 1) % themes.length];
      if (next === 'system') delete root.dataset.theme; else root.dataset.theme = next;
      try { localStorage.setItem('theme', next); } catch { /* for this page only */ }
      showTheme();
      document.dispatchEvent(new Event('themechange'));
    });
  }

  // Times: relative ones are updated, and the viewer's time zone is shown next to the job's.
  const units = [[31557600, ' year', 's'], [86400, ' day', 's'], [3600, ' h', ''], [60, ' min', ''], [1, ' s', '']];
  const relative = (moment) => {
    const seconds = (moment - Date.now()) / 1000;
    const size = Math.abs(seconds);
    if (size < 1) return 'now';
    const [unit, name, plural] = units.find(([seconds]) => size >= seconds) || units[4];
    const count = Math.floor(size / unit);
    const text = `${count.toLocaleString('en')}${name}${count > 1 ? plural : ''}`;
    return seconds > 0 ? `in ${text}` : `${text} ago`;
  };
  const format = { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' };
  const toMinutes = new Intl.DateTimeFormat('en-GB', format);
  const toSeconds = new Intl.DateTimeFormat('en-GB', { ...format, second: '2-digit' });
  const viewerTime = (text) => {
    const moment = new Date(text);
    return (moment.getSeconds() || moment.getMilliseconds() ? toSeconds : toMinutes).format(moment).replace(/,/g, '');
  };
  const updateTimes = () => all('time[data-rel]').forEach((time) => {
    const text = relative(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  });
  const addViewerTimes = (within = document) => {
    all('time[data-rel]', within).forEach((time) => {
      if (time.dataset.mine) return;
      time.dataset.mine = '1';
      time.title += ` · ${viewerTime(time.dateTime)} your time`;
      if (!time.closest('a, summary, button')) time.tabIndex = 0;
    });
    all('[data-your]', within).forEach((part) => { part.textContent = ` · ${viewerTime(part.dataset.your)} your time`; });
    all('[data-your-cell]', within).forEach((cell) => { cell.textContent = viewerTime(cell.dataset.yourCell); cell.hidden = false; });
    all('[data-your-head]', within).forEach((head) => { head.hidden = false; });
  };
  // Show the exact time on focus or touch too: browsers show a title only on hover.
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener('focusin', ({ target }) => {
    const time = target.matches('time[data-rel]') ? target : target.querySelector(':scope > time[data-rel]');
    tip.hidden = !time;
    if (!time) return;
    tip.textContent = time.title;
    const box = time.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.bottom + 6}px`;
  });
  ['focusout', 'scroll'].forEach((kind) => document.addEventListener(kind, () => { tip.hidden = true; }, true));
  setInterval(updateTimes, 1000);
  addViewerTimes();
  document.addEventListener('htmx:afterSwap', (event) => addViewerTimes(event.target));

  // The connection: every page says if the session has ended or the server cannot be reached.
  const connection = document.getElementById('connection');
  let trouble = '';
  let reached = new Date();
  const showTrouble = (kind) => {
    if (!kind) reached = new Date();
    if (!connection || kind === trouble) return;
    trouble = kind;
    connection.hidden = !kind;
    if (kind === 'ended') {
      const here = encodeURIComponent(window.location.pathname + window.location.search);
      connection.innerHTML = `▲ Your session has ended. <a href="/login?next=${here}">Sign in again</a>; what you typed is kept.`;
    } else if (kind) {
      connection.textContent = `▲ Offline: the server cannot be reached. This page is as of ${reached.toLocaleTimeString('en-GB')}.`;
    }
  };
  const checkSession = async () => {
    if (!connection) return;
    try {
      const response = await fetch('/session', { headers: { 'HX-Request': 'true' }, cache: 'no-store' });
      showTrouble(response.status === 401 ? 'ended' : response.status >= 500 ? 'offline' : '');
    } catch { showTrouble('offline'); }
  };
  window.addEventListener('offline', () => showTrouble('offline'));
  window.addEventListener('online', checkSession);
  setInterval(() => { if (!document.hidden) checkSession(); }, 60000);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) checkSession(); });

  // The content of a form survives a session that has ended: it is filled in again after the next login.
  const user = document.body.dataset.who;
  const keepDraft = (draft) => {
    const fields = [...new FormData(draft)].filter(([name, value]) => name !== 'form_token' && typeof value === 'string');
    try { sessionStorage.setItem('draft', JSON.stringify({ path: window.location.pathname, user, fields })); } catch { /* too large */ }
  };
  const restoreDraft = (draft, fields) => {
    all('input[type="checkbox"]', draft).forEach((box) => { box.checked = false; });
    fields.forEach(([name, value]) => {
      const field = draft.elements[name];
      if (!field) return;
      if (field.type === 'checkbox') field.checked = true; else field.value = value;
    });
    const note = document.createElement('p');
    note.className = 'flash';
    note.setAttribute('role', 'status');
    note.textContent = '● Your input from before the sign-in is filled in again. It is not saved yet.';
    draft.before(note);
  };
  all('form[data-draft]').forEach((draft) => {
    draft.addEventListener('submit', () => keepDraft(draft));
    document.addEventListener('click', ({ target }) => { if (target.closest('#connection a')) keepDraft(draft); });
  });
  try {
    const kept = JSON.parse(sessionStorage.getItem('draft') || 'null');
    if (kept && user) {
      sessionStorage.removeItem('draft');
      const draft = document.querySelector('form[data-draft]');
      const answered = document.querySelector('main [role="alert"]');
      if (draft && !answered && kept.path === window.location.pathname && kept.user === user) restoreDraft(draft, kept.fields);
    }
  } catch { /* no storage */ }

  // The form: show only the parts for the current choices.
  const form = document.getElementById('job-form');
  if (form) {
    const value = (name) => {
      const fields = form.elements[name];
      if (!fields) return '';
      if (fields instanceof RadioNodeList) return fields.value;
      return fields.type === 'checkbox' ? (fields.checked ? 'on' : '') : fields.value;
    };
    const arrange = () => {
      const hasTarget = value('then') !== 'message';
      all('[data-for]', form).forEach((part) => {
        const [name, values] = part.dataset.for.split(':');
        const now = name === 'tracked' && hasTarget ? 'on' : value(name);
        part.hidden = values === '*' ? !now.trim() : !values.split(',').includes(now);
      });
    };
    form.addEventListener('change', arrange);
    form.addEventListener('input', arrange);
    arrange();
    const office = document.getElementById('office-hours');
    if (office) office.addEventListener('click', () => {
      form.elements.windowed.checked = true;
      form.elements.window_from.value = '09:00';
      form.elements.window_to.value = '17:00';
      for (let day = 0; day < 7; day += 1) form.elements[`window_day_${day}`].checked = day < 5;
      form.elements.windowed.dispatchEvent(new Event('change', { bubbles: true }));
      form.elements.windowed.dispatchEvent(new Event('input', { bubbles: true }));
    });
    const zone = document.getElementById('my-zone');
    if (zone) zone.addEventListener('click', () => {
      form.elements.timezone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
      form.elements.timezone.dispatchEvent(new Event('input', { bubbles: true }));
    });
  }

  // Types are suggested, and a type with announced parameters has inputs that fill in the payload.
  const inputs = document.getElementById('payload-inputs');
  if (form && inputs) {
    const type = form.elements.job_type;
    const part = async (address) => {
      try {
        const response = await fetch(address, { headers: { 'HX-Request': 'true' } });
        return response.ok ? await response.text() : '';
      } catch { return ''; }
    };
    type.addEventListener('focus', async () => { document.getElementById('types').innerHTML = await part('/jobs/types'); }, { once: true });
    const payloadOf = () => {
      try {
        const value = JSON.parse(form.elements.payload.value || '{}');
        return value && typeof value === 'object' && !Array.isArray(value) ? value : null;
      } catch { return null; }
    };
    const fillInputs = () => {
      const payload = payloadOf();
      if (payload) all('[data-payload]', inputs).forEach((input) => {
        const value = payload[input.dataset.payload];
        if (input.type === 'checkbox') input.checked = value === true;
        else if (value !== undefined) input.value = typeof value === 'object' ? JSON.stringify(value) : String(value);
      });
    };
    const offerInputs = async () => {
      const asked = type.value;
      const markup = asked ? await part(`/jobs/types/payload?job_type=${encodeURIComponent(asked)}`) : '';
      if (asked === type.value) { inputs.innerHTML = markup; fillInputs(); }
    };
    const parsedInput = ({ type: kind, dataset, checked, value }) => {
      if (kind === 'checkbox') return checked;
      if (value === '') return undefined;
      if (dataset.kind === 'number') return Number(value);
      if (dataset.kind !== 'json') return value;
      try { return JSON.parse(value); } catch { return value; }
    };
    inputs.addEventListener('input', ({ target }) => {
      const payload = payloadOf();
      if (!payload || !target.dataset.payload) return;
      const value = parsedInput(target);
      if (value === undefined) delete payload[target.dataset.payload]; else payload[target.dataset.payload] = value;
      form.elements.payload.value = JSON.stringify(payload, null, 2);
    });
    type.addEventListener('change', offerInputs);
    if (type.value) offerInputs();
  }

  // The next occurrences and problems while typing; only the newest response is shown.
  const preview = document.getElementById('preview');
  if (form && preview) {
    let timer = 0;
    let requests = 0;
    const update = async () => {
      requests += 1;
      const number = requests;
      try {
        const response = await fetch('/jobs/preview', {
          method: 'POST', body: new URLSearchParams(new FormData(form)), headers: { 'HX-Request': 'true' },
        });
        const markup = await response.text();
        if (number === requests && response.ok) preview.innerHTML = markup;
        if (response.status === 401) showTrouble('ended');
      } catch { /* the page is being left, or the server is unavailable: keep the last preview */ }
    };
    if (document.querySelector('main > .flash, form + .flash, .flash + #job-form')) timer = setTimeout(update, 50);
    form.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(update, 250); });
    form.addEventListener('submit', () => clearTimeout(timer));
  }

  // On a phone the pages and the filters are folded.
  const menu = document.getElementById('menu');
  if (menu) menu.addEventListener('click', () => {
    menu.setAttribute('aria-expanded', String(menu.closest('.top').classList.toggle('open')));
  });
  if (window.matchMedia('(max-width: 40rem)').matches) all('form.filters').forEach((filters) => {
    const fields = all('input:not([type="hidden"]), select', filters);
    if (fields.length < 3 || fields.some((field) => field.value)) return;
    const unfold = document.createElement('button');
    unfold.type = 'button';
    unfold.className = 'unfold';
    unfold.textContent = 'Filters';
    unfold.addEventListener('click', () => { filters.classList.remove('folded'); fields[0].focus(); });
    filters.prepend(unfold);
    filters.classList.add('folded');
  });

  // "/" focuses the search, as in many consoles.
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest('input, textarea, select, [contenteditable]');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const find = all('input[type="search"]').find((input) => input.name === 'q' && input.offsetParent);
    if (find) { event.preventDefault(); find.focus(); }
  });

  // Times in filters are in the viewer's zone, which the address keeps.
  all('input[data-my-zone]').forEach((input) => {
    input.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    all('[data-zone-label]').forEach((label) => { label.textContent = 'your time'; });
    input.form.addEventListener('submit', () => {
      if (!input.form.elements.since.value && !input.form.elements.until.value) input.disabled = true;
    });
  });

  const fillZone = document.querySelector('[data-fill-zone]');
  if (fillZone) fillZone.addEventListener('click', () => {
    fillZone.form.elements.zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    fillZone.form.requestSubmit();
  });

  // Types and tenants are suggested once a field for them is focused.
  document.addEventListener('focusin', async ({ target }) => {
    if (!target.matches('input[data-suggest]') || document.getElementById(target.getAttribute('list'))) return;
    const list = document.createElement('datalist');
    list.id = target.getAttribute('list');
    document.body.append(list);
    try {
      const response = await fetch(`/jobs/${list.id}`, { headers: { 'HX-Request': 'true' } });
      if (response.ok) list.innerHTML = await response.text();
    } catch { /* no suggestions */ }
  });

  // Copy buttons; without access to the clipboard the text is selected.
  document.addEventListener('click', async ({ target }) => {
    if (!target.dataset || !target.dataset.copies) return;
    const text = document.getElementById(target.dataset.copies);
    try {
      await navigator.clipboard.writeText(text.textContent);
      target.textContent = 'Copied';
    } catch {
      window.getSelection().selectAllChildren(text);
      target.textContent = 'Selected';
    }
    setTimeout(() => { target.textContent = 'Copy'; }, 2000);
  });

  // Selected rows: their number, and all of a page at once. The bar is shown once something is selected.
  const selected = document.getElementById('selected');
  const showSelected = () => {
    const bar = document.getElementById('selected');
    if (!bar) return;
    const number = all('input.pick:checked').length;
    bar.hidden = !number;
    bar.querySelector('[data-selected]').textContent = `${number} selected:`;
  };
  if (selected) document.addEventListener('change', ({ target }) => {
    if (target.id === 'pick-all') all('input.pick').forEach((pick) => { pick.checked = target.checked; });
    if (target.matches('#pick-all, input.pick')) showSelected();
  });
  showSelected();
  document.addEventListener('htmx:afterSettle', showSelected);

  // A chosen file is read into a text field, so that forms stay plain text.
  all('input[data-reads-into]').forEach((input) => input.addEventListener('change', async () => {
    const [file] = input.files;
    if (file) document.getElementById(input.dataset.readsInto).value = await file.text();
  }));

  // Menus close when something else is clicked, and by Escape.
  document.addEventListener('click', (event) => all('details.menu[open]').forEach((menu) => {
    if (!menu.contains(event.target)) menu.open = false;
  }));
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') all('details.menu[open]').forEach((menu) => { menu.open = false; });
  });

  // Live parts and rows: replaced in place, but never under the pointer or around the focus.
  const address = document.body.dataset.live;
  if (!address || !window.EventSource) return;
  const waiting = new Map(); // by element id: the new markup, and whether it replaces the element or its content
  let source = null;
  let state = 'connecting';
  let retryDelay = 5000; // milliseconds
  const showState = () => all('[data-live-state]').forEach((label) => {
    label.innerHTML = `<span aria-hidden="true">${state === 'live' ? '●' : '○'}</span> ${state}`;
  });
  const slots = (part) => all(`[data-held="${part.id}"]`);
  const hovered = (part) => (slots(part).length ? part.closest('.panel') : part).matches(':hover');
  let acted = null; // the id of the row whose action has been sent
  const busy = (part) => part.id === acted || (hovered(part) && (part.matches('tr') || part.querySelector('table, form, details')))
    || (part.contains(document.activeElement) && document.activeElement !== document.body);
  // Identifies a <details> across replacements: its position changes as others come and go.
  const detailsKey = (details) => details.dataset.key
    || `${details.closest('[data-key]')?.dataset.key ?? ''} ${details.querySelector('summary').textContent}`;
  const fill = (part, markup) => {
    const open = new Map(all('details', part).map((details) => [detailsKey(details), details.open]));
    const scrolled = all('pre', part).map((pre) => [pre.scrollTop, pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4]);
    part.innerHTML = markup;
    all('details', part).forEach((details) => { details.open = open.get(detailsKey(details)) ?? details.open; });
    all('pre', part).forEach((pre, index) => {
      if (scrolled[index]) pre.scrollTop = scrolled[index][1] ? pre.scrollHeight : scrolled[index][0];
    });
    return part;
  };
  const parsed = (markup) => {
    const template = document.createElement('template');
    template.innerHTML = markup;
    return template.content;
  };
  const replace = (part, markup) => {
    const element = parsed(markup).firstElementChild;
    const pick = element.querySelector('input.pick');
    if (pick) pick.checked = part.querySelector('input.pick')?.checked ?? false;
    part.replaceWith(element);
    return element;
  };
  // Keep the element under the pointer in place, even if parts above it have grown.
  const put = (part, { markup, itself }) => {
    const held = all('tr:hover, a:hover, button:hover').pop();
    const before = held ? held.getBoundingClientRect().top : 0;
    const updated = itself ? replace(part, markup) : fill(part, markup);
    addViewerTimes(updated);
    if (window.htmx) window.htmx.process(updated);
    updateTimes();
    const moved = held && held.isConnected ? held.getBoundingClientRect().top - before : 0;
    if (moved) window.scrollBy(0, moved);
  };
  // A table under the pointer is not replaced. It shows the number of new rows; a click on it inserts them.
  const offer = (part, next) => slots(part).forEach((slot) => {
    const rows = next ? all('tr[id]', parsed(next.markup)).filter((row) => !document.getElementById(row.id)).length : 0;
    if (!rows) { slot.textContent = ''; return; }
    const bring = slot.firstElementChild || slot.appendChild(document.createElement('button'));
    bring.type = 'button';
    bring.className = 'small';
    if (bring.textContent !== `${rows} new`) bring.textContent = `${rows} new`;
    bring.onclick = () => { waiting.delete(part.id); put(part, next); offer(part); };
  });
  const settle = () => waiting.forEach((next, id) => {
    const part = document.getElementById(id);
    if (!part) waiting.delete(id);
    else if (busy(part)) offer(part, next);
    else { waiting.delete(id); put(part, next); offer(part); }
  });
  document.addEventListener('pointermove', () => { if (waiting.size) settle(); });
  document.addEventListener('focusout', () => setTimeout(settle));
  const news = document.getElementById('news');
  const count = (text) => { if (news) { news.hidden = !text; if (news.textContent !== text) news.textContent = text; } };
  const list = () => document.getElementById('list');
  const stream = () => {
    if (!list()) return address;
    const rows = all('tr[id]', list()).map((row) => row.id.replace(/^(job|run)-/, ''));
    return `${address}&last=${encodeURIComponent(list().dataset.last)}&rows=${rows.join(',')}`;
  };
  const open = () => {
    if (source) return;
    source = new EventSource(stream());
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      state = 'live';
      retryDelay = 5000;
      if (trouble === 'offline') showTrouble(''); // a stream outlives its session for a while
      Object.entries(message.parts || {}).forEach(([name, markup]) => waiting.set(`part-${name}`, { markup, itself: false }));
      Object.entries(message.rows || {}).forEach(([id, markup]) => waiting.set(id, { markup, itself: true }));
      settle();
      showState();
      if (message.news !== undefined) count(message.news);
      if (message.sample) document.dispatchEvent(new CustomEvent('sample', { detail: message }));
    };
    source.onerror = ({ target }) => {
      state = 'reconnecting';
      showState();
      checkSession();
      // After a response that is not a stream, such as an error, a browser does not reconnect automatically.
      if (target !== source || target.readyState !== EventSource.CLOSED) return;
      source = null;
      setTimeout(() => { if (!document.hidden && trouble !== 'ended') open(); }, retryDelay);
      retryDelay = Math.min(2 * retryDelay, 60000);
    };
  };
  const close = () => { if (source) { source.close(); source = null; state = 'paused'; showState(); } };
  // After an action in a row the focus returns to the row's button; until then the stream leaves the row alone.
  document.addEventListener('htmx:beforeRequest', ({ target }) => { acted = target.closest('tr[id]')?.id ?? null; });
  const returnFocus = () => {
    if (acted && document.activeElement === document.body) document.getElementById(acted)?.querySelector('form[hx-post] button')?.focus();
    acted = null;
  };
  ['htmx:afterSettle', 'htmx:responseError', 'htmx:sendError'].forEach((kind) => document.addEventListener(kind, returnFocus));
  // Restart the stream: it must include new rows, and no older message may overwrite a row that an action has just
  // updated.
  document.addEventListener('htmx:afterSettle', ({ target }) => {
    if (target.id === 'list') { count(''); addViewerTimes(); } else if (target.matches('tr[id]')) waiting.delete(target.id); else return;
    if (!source) return;
    source.close();
    source = null;
    open();
  });
  // A hidden tab holds no connection: browsers allow six per server.
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  if (!document.hidden) open();
})();
