// The console's own script: theme, times, the form's parts, and live parts. Every page works for reading without it.
(() => {
  'use strict';
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: system, light, dark.
  const themes = ['system', 'light', 'dark'];
  const button = document.getElementById('theme');
  const chosen = () => root.dataset.theme || 'system';
  const say = () => { if (button) button.textContent = `Theme: ${chosen()}`; };
  if (button) {
    say();
    button.addEventListener('click', () => {
      const next = themes[(themes.indexOf(chosen()) + 1) % themes.length];
      if (next === 'system') delete root.dataset.theme; else root.dataset.theme = next;
      try { localStorage.setItem('theme', next); } catch { /* for this page only */ }
      say();
      document.dispatchEvent(new Event('themechange'));
    });
  }

  // Times: relative ones stay true, and the viewer's zone is shown next to the job's.
  const units = [[31557600, ' year', 's'], [86400, ' day', 's'], [3600, ' h', ''], [60, ' min', ''], [1, ' s', '']];
  const relative = (moment) => {
    const seconds = (moment - Date.now()) / 1000;
    const size = Math.abs(seconds);
    if (size < 1) return 'now';
    const [unit, name, several] = units.find(([each]) => size >= each) || units[4];
    const count = Math.floor(size / unit);
    const text = `${count.toLocaleString('en')}${name}${count > 1 ? several : ''}`;
    return seconds > 0 ? `in ${text}` : `${text} ago`;
  };
  const shown = { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' };
  const toMinutes = new Intl.DateTimeFormat('en-GB', shown);
  const toSeconds = new Intl.DateTimeFormat('en-GB', { ...shown, second: '2-digit' });
  const yours = (text) => {
    const moment = new Date(text);
    return (moment.getSeconds() || moment.getMilliseconds() ? toSeconds : toMinutes).format(moment).replace(/,/g, '');
  };
  const tick = () => all('time[data-rel]').forEach((each) => {
    const text = relative(Date.parse(each.dateTime));
    if (each.textContent !== text) each.textContent = text;
  });
  const dress = (within = document) => {
    all('time[data-rel]', within).forEach((each) => {
      if (each.dataset.mine) return;
      each.dataset.mine = '1';
      each.title += ` · ${yours(each.dateTime)} your time`;
      if (!each.closest('a, summary, button')) each.tabIndex = 0;
    });
    all('[data-your]', within).forEach((each) => { each.textContent = ` · ${yours(each.dataset.your)} your time`; });
    all('[data-your-cell]', within).forEach((each) => { each.textContent = yours(each.dataset.yourCell); each.hidden = false; });
    all('[data-your-head]', within).forEach((each) => { each.hidden = false; });
  };
  // The exact time on focus too, for which browsers show no title; and so by a touch.
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener('focusin', ({ target }) => {
    const time = target.matches('time[data-rel]') ? target : target.querySelector(':scope > time[data-rel]');
    tip.hidden = !time;
    if (!time) return;
    tip.textContent = time.title;
    const place = time.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${place.bottom + 6}px`;
  });
  ['focusout', 'scroll'].forEach((kind) => document.addEventListener(kind, () => { tip.hidden = true; }, true));
  setInterval(tick, 1000);
  dress();
  document.addEventListener('htmx:afterSwap', (event) => dress(event.target));

  // The form: only the parts that the choices ask for.
  const form = document.getElementById('job-form');
  if (form) {
    const value = (name) => {
      const fields = form.elements[name];
      if (!fields) return '';
      if (fields instanceof RadioNodeList) return fields.value;
      return fields.type === 'checkbox' ? (fields.checked ? 'on' : '') : fields.value;
    };
    const arrange = () => {
      const worked = value('then') !== 'message';
      all('[data-for]', form).forEach((part) => {
        const [name, wanted] = part.dataset.for.split(':');
        const now = name === 'tracked' && worked ? 'on' : value(name);
        part.hidden = !wanted.split(',').includes(now);
      });
    };
    form.addEventListener('change', arrange);
    arrange();
    const zone = document.getElementById('my-zone');
    if (zone) zone.addEventListener('click', () => {
      form.elements.timezone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
      form.elements.timezone.dispatchEvent(new Event('input', { bubbles: true }));
    });
  }

  // The next occurrences, and what is wrong, while typing; an answer that comes too late is not shown.
  const preview = document.getElementById('preview');
  if (form && preview) {
    let timer = 0;
    let asked = 0;
    const ask = async () => {
      asked += 1;
      const mine = asked;
      try {
        const answer = await fetch('/jobs/preview', {
          method: 'POST', body: new URLSearchParams(new FormData(form)), headers: { 'HX-Request': 'true' },
        });
        const markup = await answer.text();
        if (mine === asked && answer.ok) preview.innerHTML = markup;
      } catch { /* the page is being left, or the server is away: what is shown stays */ }
    };
    form.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(ask, 250); });
    form.addEventListener('submit', () => clearTimeout(timer));
  }

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
  const waiting = new Map(); // by the id of what is replaced: its markup, and whether that is the element itself
  let source = null;
  let state = 'connecting';
  let patience = 5000; // milliseconds
  const show = () => all('[data-live-state]').forEach((each) => {
    each.innerHTML = `<span aria-hidden="true">${state === 'live' ? '●' : '○'}</span> ${state}`;
  });
  const slots = (part) => all(`[data-held="${part.id}"]`);
  const hovered = (part) => (slots(part).length ? part.closest('.panel') : part).matches(':hover');
  const busy = (part) => (hovered(part) && (part.matches('tr') || part.querySelector('table, form, details')))
    || (part.contains(document.activeElement) && document.activeElement !== document.body);
  const fill = (part, markup) => {
    const open = all('details', part).map((each) => each.open);
    const scrolled = all('pre', part).map((each) => [each.scrollTop, each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
    part.innerHTML = markup;
    all('details', part).forEach((each, index) => { if (open[index] !== undefined) each.open = open[index]; });
    all('pre', part).forEach((each, index) => {
      if (scrolled[index]) each.scrollTop = scrolled[index][1] ? each.scrollHeight : scrolled[index][0];
    });
    return part;
  };
  const parsed = (markup) => {
    const template = document.createElement('template');
    template.innerHTML = markup;
    return template.content;
  };
  const change = (part, markup) => {
    const made = parsed(markup).firstElementChild;
    part.replaceWith(made);
    return made;
  };
  // What is under the pointer stays there, though something above it may have grown.
  const put = (part, { markup, itself }) => {
    const held = all('tr:hover, a:hover, button:hover').pop();
    const before = held ? held.getBoundingClientRect().top : 0;
    const made = itself ? change(part, markup) : fill(part, markup);
    dress(made);
    if (window.htmx) window.htmx.process(made);
    tick();
    const moved = held && held.isConnected ? held.getBoundingClientRect().top - before : 0;
    if (moved) window.scrollBy(0, moved);
  };
  // A table that is not replaced, for the pointer is in its panel, says how many rows wait; a click brings them.
  const tell = (part, next) => slots(part).forEach((slot) => {
    const rows = next ? all('tr[id]', parsed(next.markup)).filter((row) => !document.getElementById(row.id)).length : 0;
    if (!rows) { slot.textContent = ''; return; }
    const bring = slot.firstElementChild || slot.appendChild(document.createElement('button'));
    bring.type = 'button';
    bring.className = 'small';
    if (bring.textContent !== `${rows} new`) bring.textContent = `${rows} new`;
    bring.onclick = () => { waiting.delete(part.id); put(part, next); tell(part); };
  });
  const settle = () => waiting.forEach((next, id) => {
    const part = document.getElementById(id);
    if (!part) waiting.delete(id);
    else if (busy(part)) tell(part, next);
    else { waiting.delete(id); put(part, next); tell(part); }
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
      patience = 5000;
      Object.entries(message.parts || {}).forEach(([name, markup]) => waiting.set(`part-${name}`, { markup, itself: false }));
      Object.entries(message.rows || {}).forEach(([id, markup]) => waiting.set(id, { markup, itself: true }));
      settle();
      show();
      if (message.news !== undefined) count(message.news);
      if (message.sample) document.dispatchEvent(new CustomEvent('sample', { detail: message }));
    };
    source.onerror = ({ target }) => {
      state = 'reconnecting';
      show();
      // After an answer that is no stream, such as "no database", a browser does not ask again by itself.
      if (target !== source || target.readyState !== EventSource.CLOSED) return;
      source = null;
      setTimeout(() => { if (!document.hidden) open(); }, patience);
      patience = Math.min(2 * patience, 60000);
    };
  };
  const close = () => { if (source) { source.close(); source = null; state = 'paused'; show(); } };
  // Rows that were brought are watched too. A row that an action has drawn is newer than what is on its way: a new
  // stream tells only what was looked at since.
  document.addEventListener('htmx:afterSettle', ({ target }) => {
    if (target.id === 'list') { count(''); dress(); } else if (target.matches('tr[id]')) waiting.delete(target.id); else return;
    if (!source) return;
    source.close();
    source = null;
    open();
  });
  // A tab that nobody sees holds no connection: browsers allow six to one server.
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  if (!document.hidden) open();
})();
