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

  // Times: relative ones stay true, and the viewer's own zone stands beside the job's.
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
    return (moment.getSeconds() ? toSeconds : toMinutes).format(moment).replace(/,/g, '');
  };
  const tick = () => all('time[data-rel]').forEach((each) => {
    const text = relative(Date.parse(each.dateTime));
    if (each.textContent !== text) each.textContent = text;
  });
  const dress = (within = document) => {
    all('time[data-rel]', within).forEach((each) => {
      if (!each.dataset.mine) { each.dataset.mine = '1'; each.title += ` · ${yours(each.dateTime)} your time`; }
    });
    all('[data-your]', within).forEach((each) => { each.textContent = ` · ${yours(each.dataset.your)} your time`; });
    all('[data-your-cell]', within).forEach((each) => { each.textContent = yours(each.dataset.yourCell); each.hidden = false; });
    all('[data-your-head]', within).forEach((each) => { each.hidden = false; });
  };
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

  // Live parts: replaced in place, but never under the pointer or around the focus.
  const topic = document.body.dataset.live;
  if (!topic || !window.EventSource) return;
  const waiting = new Map();
  let source = null;
  let state = 'connecting';
  const show = () => all('[data-live-state]').forEach((each) => {
    each.innerHTML = `<span aria-hidden="true">${state === 'live' ? '●' : '○'}</span> ${state}`;
  });
  const busy = (part) => part.matches(':hover') && part.querySelector('table, form, details')
    || (part.contains(document.activeElement) && document.activeElement !== document.body);
  const put = (part, markup) => {
    const open = all('details', part).map((each) => each.open);
    const scrolled = all('pre', part).map((each) => [each.scrollTop, each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
    part.innerHTML = markup;
    all('details', part).forEach((each, index) => { if (open[index] !== undefined) each.open = open[index]; });
    all('pre', part).forEach((each, index) => {
      if (scrolled[index]) each.scrollTop = scrolled[index][1] ? each.scrollHeight : scrolled[index][0];
    });
    dress(part);
    if (window.htmx) window.htmx.process(part);
    tick();
  };
  const settle = () => waiting.forEach((markup, name) => {
    const part = document.getElementById(`part-${name}`);
    if (!part) waiting.delete(name);
    else if (!busy(part)) { waiting.delete(name); put(part, markup); }
  });
  document.addEventListener('pointermove', () => { if (waiting.size) settle(); });
  document.addEventListener('focusout', () => setTimeout(settle));
  const open = () => {
    if (source) return;
    source = new EventSource(`/live?topic=${encodeURIComponent(topic)}`);
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      state = 'live';
      Object.entries(message.parts).forEach(([name, markup]) => waiting.set(name, markup));
      settle();
      show();
      if (message.sample) document.dispatchEvent(new CustomEvent('sample', { detail: message }));
    };
    source.onerror = () => { state = 'connecting again'; show(); };
  };
  const close = () => { if (source) { source.close(); source = null; state = 'paused'; show(); } };
  // A tab that nobody sees holds no connection: browsers allow six to one server.
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  if (!document.hidden) open();
})();
