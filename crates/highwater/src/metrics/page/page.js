'use strict';
// This page reads /metrics once per second while it is visible, and draws from that. Rates and quantiles
// are of the time between two readings. Everything that comes from the server is inserted as text.

const PERIOD = 1000, TIMEOUT = 3000, WINDOW = 120e3, ENDPOINTS = 20, UNLIMITED = 1048576;
const LAYERS = ['kernel', 'accept', 'queue', 'request'];
const NEEDED = ['highwater_build_info', 'http_requests_total', 'http_goodput_total', 'http_connections_active'];
const byId = id => document.getElementById(id);

// Reading a page of metrics.

function labels(text) {
  const found = {};
  for (const [, name, value] of (text || '').matchAll(/(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"/g))
    found[name] = value.replace(/\\(.)/g, (whole, c) => c === 'n' ? '\n' : c === '"' || c === '\\' ? c : whole);
  return found;
}

function read(text) {
  const one = {}, endpoints = new Map(), refusals = new Map(), workers = [], queue = [], info = {};
  const endpoint = name => {
    if (!endpoints.has(name)) endpoints.set(name, { name, total: 0, buckets: [] });
    return endpoints.get(name);
  };
  for (const line of text.split('\n')) {
    const parts = /^([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!parts) continue;
    const [, name, inside, word] = parts;
    const value = word === '+Inf' ? Infinity : Number(word);
    if (!inside) { one[name] = value; continue; }
    const has = labels(inside), bound = has.le === '+Inf' ? Infinity : Number(has.le);
    if (name === 'http_requests_by_endpoint') endpoint(has.endpoint).total = value;
    else if (name === 'http_request_duration_seconds_bucket') endpoint(has.endpoint).buckets.push([bound, value]);
    else if (name === 'http_queue_delay_seconds_bucket') queue.push([bound, value]);
    else if (name === 'http_rejections_total') refusals.set(has.layer + ': ' + has.reason, { layer: has.layer, total: value });
    else if (name === 'highwater_worker_busy_ratio') workers.push([has.worker, value]);
    else if (name.endsWith('_info')) { info[name] = has; one[name] = value; }
  }
  const lacking = NEEDED.filter(name => !(name in one));
  if (lacking.length) throw new Error('its metrics lack ' + lacking.join(', '));
  return { one, endpoints, refusals, workers, queue, info, at: Date.now() };
}

// From two readings to figures.

function rate(before, after, seconds) {
  const value = (after - before) / seconds;
  return value >= 0 && Number.isFinite(value) ? value : null;
}

function since(before, after) {
  if (!before || !before.length) return after;
  if (before.length !== after.length) return [];
  const difference = after.map(([bound, count], at) => [bound, count - before[at][1]]);
  return difference.some(([bound, count], at) => count < 0 || bound !== before[at][0]) ? [] : difference;
}

function plus(a, b) {
  if (!a.length || a.length !== b.length) return a.length ? a : b;
  return a.map(([bound, count], at) => [bound, count + b[at][1]]);
}

// In the first bucket only its upper bound is known, in the last only its lower one; the mark says so.
function quantile(buckets, q) {
  const total = buckets.length ? buckets[buckets.length - 1][1] : 0;
  if (!(total > 0)) return null;
  let low = 0, below = 0;
  for (const [bound, count] of buckets) {
    if (count >= q * total) return bound === Infinity ? { seconds: low, mark: '> ' }
      : low === 0 ? { seconds: bound, mark: '< ' }
      : { seconds: low + (bound - low) * (q * total - below) / (count - below), mark: '' };
    [low, below] = [bound, count];
  }
  return null;
}

const isAnother = (before, after) =>
  after.one.process_start_time_seconds > before.one.process_start_time_seconds + 0.05 ||
  after.one.http_uptime_seconds < before.one.http_uptime_seconds ||
  after.one.http_requests_total < before.one.http_requests_total;

function between(before, after) {
  const restarted = !!before && isAnother(before, after);
  if (restarted) before = null;
  const spent = before && after.one.http_uptime_seconds - before.one.http_uptime_seconds;
  const seconds = spent || (before && (after.at - before.at) / 1000);
  const known = seconds >= 0.01;
  const of = name => known ? rate(before.one[name], after.one[name], seconds) : null;
  let all = [];
  const endpoints = [...after.endpoints.values()].map(({ name, total, buckets }) => {
    const then = known && before.endpoints.get(name);
    const durations = known ? since(then && then.buckets, buckets) : [];
    all = plus(all, durations);
    return { name, total, rate: known ? rate(then ? then.total : 0, total, seconds) : null,
      p50: quantile(durations, 0.5), p99: quantile(durations, 0.99) };
  });
  const refusals = [...after.refusals].map(([name, { layer, total }]) => {
    const then = known && before.refusals.get(name);
    return { name, layer, total, rate: known ? rate(then ? then.total : 0, total, seconds) : null };
  });
  const delays = known ? since(before.queue, after.queue) : [];
  const limit = after.one.http_scaling_connection_limit;
  const layers = LAYERS.map(layer => known
    ? refusals.filter(refusal => refusal.layer === layer).reduce((sum, refusal) => sum + (refusal.rate || 0), 0) : null);
  return {
    t: after.at, restarted, endpoints, refusals, layers, now: after,
    requests: of('http_requests_total'), good: of('http_goodput_total'), cpu: of('process_cpu_seconds_total'),
    refused: known ? layers.reduce((sum, rate) => sum + rate, 0) : null,
    p50: quantile(all, 0.5), p90: quantile(all, 0.9), p99: quantile(all, 0.99),
    wait: quantile(delays, 0.99), limit: limit < UNLIMITED ? limit : null,
    busy: after.one.http_connections_in_flight ?? null, open: after.one.http_connections_active,
  };
}

// Numbers with their units: [number, unit].

const NONE = ['–', ''];
const three = value => String(Number(value.toPrecision(value >= 100 ? Math.max(3, Math.ceil(Math.log10(value))) : 3)));
function scaled(value, units) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  for (const [size, unit] of units) if (Math.abs(value) >= size * 0.9995) return [three(value / size), unit];
  const [size, unit] = units[units.length - 1];
  return [three(value / size), unit];
}
const count = value => {
  if (value === null || value === undefined) return '–';
  const [number, unit] = value >= 9999.5 ? scaled(value, [[1e9, ' G'], [1e6, ' M'], [1e3, ' k']]) : [value < 9.95 && value % 1 ? value.toFixed(1) : String(Math.round(value)), ''];
  return number + unit;
};
const perSecond = value => value === null ? NONE : [count(value), '/s'];
const time = value => value === 0 ? ['0', 'µs'] : scaled(value, [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs']]);
const quantileText = q => {
  if (!q) return NONE;
  const [number, unit] = time(q.seconds);
  return [q.mark + number, unit];
};
const bytes = value => scaled(value, [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]);
const percent = value => [String(Math.round(value * 100)), '%'];
const joined = ([number, unit]) => unit ? number + ' ' + unit : number;
const clock = t => new Date(t).toLocaleTimeString(undefined, { hour12: false });
function passed(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s / 60) % 60 + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s / 3600) % 24 + ' h';
}

// The flag to scale out stays up for a minute after the demand has gone: the past is not shown as the present.
function need(one) {
  const { http_scaling_needs_scaleout: flag, http_scaling_demand_ratio: ratio, http_scaling_calm_seconds: calm } = one;
  if (!flag) return { text: 'needs no other instance', isNow: false };
  if (calm === undefined ? !(ratio < 0.9) : calm === 0) return { text: 'needs another instance', isNow: true };
  const ago = calm === undefined ? 'a moment ago' : passed(calm) + ' ago';
  return { text: 'needed another instance ' + ago, isNow: false };
}

// The document.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  made.append(...children);
  return made;
}
function drawn(name, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}
function bar(share) {
  const filled = element('i');
  filled.style.width = Math.min(100, Math.max(0, share * 100)) + '%';
  return element('div', { class: 'bar', 'aria-hidden': 'true' }, filled);
}

const FIGURES = [
  ['requests', 'Requests', f => perSecond(f.requests), f => count(f.now.one.http_requests_total) + ' total'],
  ['goodput', 'Goodput', f => perSecond(f.good), f => f.requests ? joined(percent(Math.min(1, f.good / f.requests))) + ' of requests' : 'answered in time'],
  ['latency', 'Latency p99', f => quantileText(f.p99), f => f.p50 === null ? 'no request' : 'p50 ' + joined(quantileText(f.p50)) + ', p90 ' + joined(quantileText(f.p90))],
  ['wait', 'Queue delay p99', f => quantileText(f.wait), () => 'before a request starts'],
  ['busy', 'In flight', f => [count(f.busy), ''], f => (f.limit === null ? 'no limit' : 'limit ' + count(f.limit)) + ', ' + count(f.open) + ' open'],
  ['refusals', 'Refused', f => perSecond(f.refused), f => count(f.refusals.reduce((sum, refusal) => sum + refusal.total, 0)) + ' total'],
  ['demand', 'Demand', f => f.now.one.http_scaling_demand_ratio === undefined ? NONE : [f.now.one.http_scaling_demand_ratio.toFixed(2), 'of capacity'],
    f => need(f.now.one).text],
  ['memory', 'Memory', f => bytes(f.now.one.process_resident_memory_bytes), f => f.cpu === null ? '' : f.cpu.toFixed(2) + ' CPU cores'],
];
const CHARTS = [
  { title: 'Requests and goodput', unit: 'per second', text: perSecond, fill: true,
    series: [['requests', 'one', p => p.requests], ['goodput', 'two dashed', p => p.good]] },
  { title: 'Latency', unit: 'logarithmic', text: time, log: true, say: (point, name) => quantileText(point[name]),
    series: ['p50', 'p90', 'p99'].map((name, at) => [name, ['low', 'middle', 'high'][at], p => p[name] && p[name].seconds]) },
  { title: 'Connections with work', unit: 'against the limit', text: value => [count(value), ''],
    series: [['in flight', 'one', p => p.busy], ['limit', 'request dashed', p => p.limit, 'no limit']] },
  { title: 'Refusals', unit: 'per second, by layer', text: perSecond, stack: true,
    series: LAYERS.map((layer, at) => [layer, layer, p => p.layers[at]]) },
];
const LEFT = 52, RIGHT = 8, TOP = 6, HEIGHT = 132, FLOOR = HEIGHT - 18;

function build() {
  for (const [id, title] of FIGURES)
    byId('figures').append(element('div', {}, element('dt', {}, title), element('dd', { class: 'value', id }), element('dd', { class: 'more', id: id + '-more' })));
  CHARTS.forEach((chart, at) => {
    const title = element('h2', { id: 'chart-' + at }, chart.title, element('small', {}, chart.unit));
    chart.values = chart.series.map(() => element('b'));
    const legend = element('ul', { class: 'legend' }, ...chart.series.map(([name, style], at) =>
      element('li', {}, element('i', { class: 'key ' + style + (chart.stack ? ' block' : ''), 'aria-hidden': 'true' }), name, chart.values[at])));
    chart.svg = drawn('svg', { role: 'img', tabindex: '0', 'aria-labelledby': 'chart-' + at });
    chart.svg.addEventListener('pointermove', event => look(chart, event));
    chart.svg.addEventListener('pointerleave', () => { cursor = null; draw(); });
    chart.svg.addEventListener('blur', () => { cursor = null; draw(); });
    chart.svg.addEventListener('keydown', step);
    byId('charts').append(element('figure', { class: 'panel' }, title, legend, chart.svg));
  });
}

function put(id, [number, unit]) {
  byId(id).replaceChildren(number, ...(unit ? [element('span', { class: 'unit' }, ' ' + unit)] : []));
}

// Charts. `points` are figures, oldest first; a point without figures is a time without an answer.

let points = [], cursor = null, edge = Date.now();

const across = width => t => LEFT + (width - LEFT - RIGHT) * (1 - (edge - t) / WINDOW);

function look(chart, event) {
  const box = chart.svg.getBoundingClientRect(), x = across(box.width);
  const seen = points.filter(point => point.now);
  cursor = seen.reduce((best, point) => {
    const away = Math.abs(x(point.t) - (event.clientX - box.left));
    return !best || away < best[1] ? [point, away] : best;
  }, null)?.[0] || null;
  draw();
}

function step(event) {
  const seen = points.filter(point => point.now);
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === 'Escape') cursor = null;
  else if (by && seen.length) cursor = seen[Math.min(seen.length - 1, Math.max(0, (cursor ? seen.indexOf(cursor) : seen.length) + by))];
  else return;
  event.preventDefault();
  draw();
}

function ceiling(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].find(step => step * size >= value * 0.9999) * size;
}

function scale(chart, shown) {
  const values = shown.flatMap(point => {
    const all = chart.series.map(([, , of]) => of(point)).filter(value => value !== null);
    return chart.stack ? [all.reduce((sum, value) => sum + value, 0)] : all;
  });
  if (chart.log) {
    const some = values.filter(value => value > 0);
    const low = Math.floor(Math.log10(some.length ? Math.min(...some) : 1e-4));
    const high = Math.max(low + 1, Math.ceil(Math.log10(some.length ? Math.max(...some) : 1e-2)));
    const ticks = [];
    for (let power = low; power <= high; power++) ticks.push(10 ** power);
    return { ticks, y: value => FLOOR - (FLOOR - TOP) * (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) };
  }
  const top = ceiling(Math.max(...values, chart.stack ? 1 : 4));
  return { ticks: [0, top / 2, top], y: value => FLOOR - (FLOOR - TOP) * value / top };
}

// A line with gaps where nothing is known; a single point is a short dash.
function line(shown, x, of) {
  let path = '', isOpen = false;
  shown.forEach((point, at) => {
    const value = point.now ? of(point) : null;
    if (value === null) { isOpen = false; return; }
    const next = shown[at + 1];
    path += (isOpen ? 'L' : 'M') + x(point.t).toFixed(1) + ' ' + value.toFixed(1);
    if (!isOpen && !(next && next.now && of(next) !== null)) path += 'h2';
    isOpen = true;
  });
  return path;
}

// The area between two heights, in one piece for each stretch without gaps.
function area(shown, x, low, high) {
  let path = '', stretch = [];
  const end = () => {
    if (stretch.length) path += 'M' + stretch.map(p => x(p.t).toFixed(1) + ' ' + high(p).toFixed(1)).join('L') +
      'L' + stretch.reverse().map(p => x(p.t).toFixed(1) + ' ' + low(p).toFixed(1)).join('L') + 'Z';
    stretch = [];
  };
  for (const point of shown) if (point.now && high(point) !== null) stretch.push(point); else end();
  end();
  return path;
}

function drawChart(chart) {
  const width = chart.svg.clientWidth || 320, x = across(width);
  const shown = points.filter(point => point.t >= edge - WINDOW);
  const { ticks, y } = scale(chart, shown.filter(point => point.now));
  const parts = [];
  for (const tick of ticks) {
    const at = y(tick);
    parts.push(drawn('line', { class: 'rule', x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    parts.push(drawn('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, joined(chart.text(tick))));
  }
  for (const [ago, text, anchor] of [[WINDOW, '2 min ago', 'start'], [WINDOW / 2, '1 min ago', 'middle'], [0, 'now', 'end']])
    parts.push(drawn('text', { x: x(edge - ago), y: HEIGHT - 3, 'text-anchor': anchor }, text));
  if (chart.stack) {
    chart.series.forEach(([, style], at) => {
      const sum = (point, to) => y(chart.series.slice(0, to).reduce((sum, [, , of]) => sum + (of(point) || 0), 0));
      const high = point => point.layers[0] === null ? null : sum(point, at + 1);
      if (shown.some(point => point.now && point.layers[at] > 0))
        parts.push(drawn('path', { class: 'stack ' + style, d: area(shown, x, point => sum(point, at), high) }));
    });
  } else {
    const height = of => point => of(point) === null ? null : y(of(point));
    chart.series.forEach(([, style, of], at) => {
      if (chart.fill && !at) parts.push(drawn('path', { class: 'fill ' + style, d: area(shown, x, () => FLOOR, height(of)) }));
      parts.push(drawn('path', { class: style, d: line(shown, x, height(of)) }));
    });
  }
  for (const { t } of shown.filter(point => point.restarted)) {
    const mark = drawn('line', { class: 'restart', x1: x(t), x2: x(t), y1: TOP, y2: FLOOR });
    mark.append(drawn('title', {}, 'restarted at ' + clock(t)));
    parts.push(mark);
  }
  if (cursor && cursor.t >= edge - WINDOW) {
    const at = x(cursor.t), isRight = at > width / 2;
    parts.push(drawn('line', { class: 'cursor', x1: at, x2: at, y1: TOP, y2: FLOOR }));
    parts.push(drawn('text', { x: at + (isRight ? -5 : 5), y: TOP + 8, 'text-anchor': isRight ? 'end' : 'start' }, clock(cursor.t)));
  }
  const point = cursor || shown.filter(point => point.now).pop();
  const said = chart.series.map(([name, , of, none], at) => {
    const value = point ? of(point) : null;
    const text = value === null && none && point ? none : joined(chart.say && point ? chart.say(point, name) : chart.text(value));
    chart.values[at].textContent = text;
    return name + ' ' + text;
  });
  chart.svg.setAttribute('aria-label', chart.title + (cursor ? ' at ' + clock(cursor.t) : ' now') + ': ' + said.join(', '));
  chart.svg.removeAttribute('aria-labelledby');
  chart.svg.replaceChildren(...parts);
}

function draw() {
  if (!byId('main').hidden) CHARTS.forEach(drawChart);
}

// Figures and tables.

function rows(table, all) {
  table.hidden = !all.length;
  table.tBodies[0].replaceChildren(...all.map(cells => element('tr', {}, ...cells)));
}
const cell = (text, style) => element('td', style ? { class: style } : {}, text);

function show(f) {
  const { one, info } = f.now;
  for (const [id, , value, more] of FIGURES) {
    put(id, value(f));
    byId(id + '-more').textContent = more(f);
  }
  byId('demand').parentElement.classList.toggle('alarm', need(one).isNow);
  byId('about').textContent = info.highwater_build_info.version + ' at ' + location.host + ', up ' + passed(one.http_uptime_seconds || 0);
  byId('workers').replaceChildren(...f.now.workers.map(([name, busy]) =>
    element('li', {}, element('span', {}, 'worker ' + name), bar(busy), element('span', {}, joined(percent(busy))))));
  const refused = f.refusals.filter(refusal => refusal.total > 0).sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.total - a.total);
  byId('nothing-refused').hidden = refused.length > 0;
  const sharing = one.highwater_share_accounts || 0;
  byId('shares').hidden = sharing === 0;
  byId('shares').textContent = count(sharing) + (sharing === 1 ? ' client has its' : ' clients have their') + ' share of the queue.';
  rows(byId('refused'), refused.map(({ name, rate, total }) => [cell(name), cell(joined(perSecond(rate))), cell(count(total))]));
  const used = f.endpoints.filter(endpoint => endpoint.total > 0).sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.total - a.total);
  byId('no-endpoint').hidden = used.length > 0;
  rows(byId('endpoints'), used.slice(0, ENDPOINTS).map(({ name, total, rate, p50, p99 }) => [
    element('td', {}, element('code', {}, name)), cell(joined(perSecond(rate))),
    cell(bar(f.requests ? rate / f.requests : 0), 'less'),
    cell(joined(quantileText(p50)), 'less'), cell(joined(quantileText(p99))), cell(count(total), 'less')]));
  const more = used.length - ENDPOINTS;
  byId('more-endpoints').hidden = more <= 0;
  byId('more-endpoints').textContent = 'and ' + more + ' more';
  const because = (choice, name) => choice ? choice[name] + ': ' + choice.reason : '–';
  const facts = [
    ['gate', because(info.highwater_gate_info, 'mechanism')],
    ['limiter', info.highwater_limiter_info ? info.highwater_limiter_info.limiter : '–'],
    ['transport', because(info.highwater_transport_info, 'transport')],
    ['descriptors', count(one.process_open_fds) + ' of ' + count(one.process_max_fds)],
    ['threads', count(one.process_threads)],
    ['build', info.highwater_build_info.profile + ', ' + info.highwater_build_info.arch],
  ];
  byId('facts').replaceChildren(...facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  const note = byId('note');
  note.hidden = one.http_requests_total > 0;
  note.textContent = 'No request yet. Send one, and it appears here within a second.';
  byId('main').hidden = false;
}

// Asking.

let before = null, gone = null, isPaused = false, timer = null, asking = false;

function state() {
  const name = isPaused ? 'paused' : gone ? 'gone' : before ? 'live' : 'asking';
  if (byId('state').textContent !== name) byId('state').textContent = name;
  byId('status').className = name;
  document.title = (gone ? 'Gone: ' : '') + 'Highwater ' + location.host;
  byId('banner').hidden = !gone;
  byId('main').classList.toggle('gone-figures', !!gone);
  if (!gone) return;
  byId('note').hidden = !!before;
  for (const [id, text] of [['since', clock(gone.since)], ['why', gone.why]])
    if (byId(id).textContent !== text) byId(id).textContent = text;
  byId('for').textContent = ', for ' + passed((Date.now() - gone.since) / 1000);
}

async function ask() {
  let answer;
  try {
    const response = await fetch('metrics', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT) });
    if (!response.ok) throw new Error('it answered ' + response.status);
    answer = read(await response.text());
  } catch (error) {
    const why = error.name === 'TimeoutError' ? 'no answer within ' + TIMEOUT / 1000 + ' s'
      : error instanceof TypeError ? 'it does not accept connections' : error.message;
    gone = { since: gone ? gone.since : Date.now(), why };
    points.push({ t: Date.now(), now: null });
    return;
  }
  const figures = between(before, answer);
  [gone, before] = [null, answer];
  points.push(figures);
  show(figures);
}

async function turn() {
  if (asking || isPaused || document.hidden) return;
  asking = true;
  const began = Date.now();
  await ask();
  asking = false;
  edge = Date.now();
  points = points.filter(point => point.t >= edge - WINDOW - 5 * PERIOD);
  if (cursor && cursor.t < edge - WINDOW) cursor = null;
  state();
  draw();
  clearTimeout(timer);
  timer = setTimeout(turn, Math.max(100, PERIOD - (Date.now() - began)));
}

function pause() {
  isPaused = !isPaused;
  byId('pause').textContent = isPaused ? 'Resume' : 'Pause';
  byId('pause').setAttribute('aria-pressed', String(isPaused));
  clearTimeout(timer);
  state();
  turn();
}

build();
byId('pause').addEventListener('click', pause);
document.addEventListener('keydown', event => {
  if (event.key === 'p' && !event.ctrlKey && !event.metaKey && !event.altKey) pause();
});
document.addEventListener('visibilitychange', () => { clearTimeout(timer); turn(); });
addEventListener('resize', draw);
turn();
