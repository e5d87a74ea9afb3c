// Charts for the last hour, drawn by uPlot with the theme's colours.
(() => {
  'use strict';
  const holder = document.getElementById('charts');
  if (!holder || !window.uPlot) return;
  const names = ['at', 'p50', 'p99', 'out', 'in', 'backlog', 'succeeded'];
  const columns = JSON.parse(holder.dataset.samples);
  const data = names.map((_, index) => columns[index] || []);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const kinds = {
    lag: [[1, 'p50', 'accent', []], [2, 'p99', 'waiting', [6, 4]]],
    rates: [[3, 'out', 'accent', []], [4, 'in', 'neutral', [6, 4]]],
    backlog: [[5, 'backlog', 'bad', []]],
    success: [[6, 'succeeded', 'good', []]],
  };
  const plots = {};
  const number = (value) => (value == null ? '–' : value >= 100 ? Math.round(value).toLocaleString('en') : String(+value.toFixed(2)));
  const range = (kind) => (plot, low, high) => (kind === 'success' ? [0, 100] : [0, Math.max(high || 0, kind === 'lag' ? 5 : 1) * 1.1]);
  const newest = (plot) => plot.setLegend({ idx: data[0].length - 1 });
  const draw = () => Object.entries(kinds).forEach(([kind, series]) => {
    const place = document.getElementById(`chart-${kind}`);
    if (plots[kind]) plots[kind].destroy();
    place.textContent = '';
    if (data[0].length < 2) {
      place.innerHTML = '<p class="chart-empty">Waiting for the first samples</p>';
      delete plots[kind];
      return;
    }
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 }, font: '11px system-ui, sans-serif' };
    plots[kind] = new window.uPlot({
      width: place.clientWidth, height: 116, cursor: { y: false, drag: { setScale: false } },
      scales: { y: { range: range(kind) } }, hooks: { ready: [newest], setData: [(plot) => setTimeout(() => newest(plot))] },
      axes: [{ ...axis, values: '{HH}:{mm}', incrs: [60, 120, 300, 600, 900, 1800], space: 60, size: 24 }, { ...axis, size: 58, values: (plot, ticks) => ticks.map(number) }],
      series: [{ value: '{HH}:{mm}:{ss}' }, ...series.map(([, label, name, dash]) => ({
        label, stroke: colour(name), width: 1.75, dash, spanGaps: true, points: { show: data[0].length < 30, size: 4 }, value: (plot, value) => number(value),
      }))],
    }, [data[0], ...series.map(([index]) => data[index])], place);
    plots[kind].over.addEventListener('mouseleave', () => newest(plots[kind]));
  });
  draw();
  document.addEventListener('themechange', draw);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  let resizing = 0;
  window.addEventListener('resize', () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
  document.addEventListener('sample', (event) => {
    event.detail.sample.forEach((value, index) => data[index].push(value));
    const oldest = data[0][data[0].length - 1] - 3600;
    while (data[0][0] < oldest) data.forEach((column) => column.shift());
    document.querySelectorAll('[data-period]').forEach((label) => { label.textContent = `· ${event.detail.period}`; });
    if (data[0].length === 2 || !plots.lag) { draw(); return; }
    Object.entries(kinds).forEach(([kind, series]) => {
      plots[kind].setData([data[0], ...series.map(([index]) => data[index])]);
    });
  });
})();
