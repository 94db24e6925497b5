'use strict';
// Everything from the document goes in as text, never as markup.
const make = (name, options = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === 'class') element.className = value;
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== ''));
  return element;
};
let api = null;
const found = reference => reference.slice(2).split('/')
  .reduce((at, part) => at?.[decodeURIComponent(part).replace(/~1/g, '/').replace(/~0/g, '~')], api);

// A schema with its references written out, as deep as a reader wants it.
const shown = (schema, depth = 0, above = []) => {
  if (typeof schema !== 'object' || schema === null) return schema;
  if (Array.isArray(schema)) return schema.map(item => shown(item, depth + 1, above));
  if (typeof schema.$ref === 'string') {
    const { $ref, ...rest } = schema;
    if (above.includes($ref) || depth > 12) return { ...rest, type: $ref.split('/').pop() };
    return shown({ ...found($ref), ...rest }, depth, [...above, $ref]);
  }
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, shown(value, depth + 1, above)]));
};

// A value that a schema describes, to begin with.
const sample = (schema, depth = 0) => {
  if (typeof schema !== 'object' || schema === null || depth > 6) return null;
  if ('const' in schema) return schema.const;
  if (schema.examples?.length) return schema.examples[0];
  if ('default' in schema && schema.default !== null) return schema.default;
  if (schema.enum?.length) return schema.enum[0];
  const choice = schema.oneOf ?? schema.anyOf;
  if (choice?.length) return sample(choice[0], depth + 1);
  const type = [schema.type].flat()[0];
  if (type === 'object' || schema.properties) {
    const wanted = schema.required ?? Object.keys(schema.properties ?? {});
    return Object.fromEntries(wanted.map(name => [name, sample(schema.properties?.[name], depth + 1)]));
  }
  if (type === 'array') return schema.items ? [sample(schema.items, depth + 1)] : [];
  if (type === 'integer' || type === 'number') return schema.minimum ?? 0;
  return type === 'boolean' ? false : type === 'string' ? '' : null;
};

const type = schema => {
  const full = shown(schema ?? {});
  if (full.enum) return full.enum.join(' | ');
  const name = [full.type ?? (full.anyOf ?? full.oneOf ?? []).map(one => one.type)].flat().filter(Boolean).join(' | ');
  const items = full.items?.type ? ` of ${full.items.type}` : '';
  return (name || 'any') + items + (full.format ? ` (${full.format})` : '');
};

const table = (heads, rows) => make('table', {},
  make('thead', {}, make('tr', {}, ...heads.map(head => make('th', { scope: 'col' }, head)))),
  make('tbody', {}, ...rows.map(row => make('tr', {}, ...row.map(cell => make('td', {}, cell))))));

// Of text that is a sequence, such as a table, what is known is the schema of each item.
const contents = content => Object.entries(content ?? {}).flatMap(([kind, { schema, 'x-oai-itemSchema': item }]) => [
  make('h3', {}, item ? `${kind}, each row` : kind),
  Object.keys(item ?? schema ?? {}).length ? make('pre', {}, JSON.stringify(shown(item ?? schema), null, 2)) : null,
]);

// The content that a form begins with.
const beginning = (kind, { schema, 'x-oai-itemSchema': item }) => {
  if (kind.includes('json')) return JSON.stringify(sample(shown(schema)), null, 2);
  const row = kind.startsWith('text/csv') && item ? sample(shown(item)) : null;
  if (row === null || typeof row !== 'object') return '';
  return Array.isArray(row) ? '' : `${Object.keys(row).join(',')}\n${Object.values(row).join(',')}\n`;
};

// Sends what the form says, and shows what comes back.
const attempt = async (method, path, operation, form, result) => {
  const query = new URLSearchParams(), headers = {};
  let target = path;
  for (const parameter of operation.parameters ?? []) {
    const value = form.elements[`${parameter.in}:${parameter.name}`].value;
    if (parameter.in === 'path') target = target.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (value !== '' && parameter.in === 'query') query.append(parameter.name, value);
    else if (value !== '' && parameter.in === 'header') headers[parameter.name] = value;
  }
  const authorization = form.elements['authorization']?.value;
  if (authorization) headers.authorization = authorization;
  const options = { method: method.toUpperCase(), headers };
  const body = form.elements['body']?.value;
  if (body) {
    headers['content-type'] = form.elements['body'].dataset.kind;
    options.body = body;
  }
  const base = location.pathname.replace(/\/docs$/, '');
  const prefix = target.startsWith(base) ? '' : base;
  const began = performance.now();
  try {
    const response = await fetch(prefix + target + (query.size ? `?${query}` : ''), options);
    const text = await response.text();
    const milliseconds = Math.round(performance.now() - began);
    const fields = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
    result.textContent = `${response.status} ${response.statusText} in ${milliseconds} ms\n${fields}\n\n${text.slice(0, 65536)}`;
  } catch (error) {
    result.textContent = String(error);
  }
};

const attempts = (method, path, operation) => {
  const result = make('pre', { class: 'result', hidden: true, role: 'status' });
  const fields = (operation.parameters ?? []).map(parameter => make('label', {},
    `${parameter.name}${parameter.required ? '' : ' (optional)'}`,
    make('input', { name: `${parameter.in}:${parameter.name}`, required: parameter.required === true && parameter.in === 'path' })));
  if (operation.security?.some(one => Object.keys(one).some(name => api.components?.securitySchemes?.[name]?.type === 'http'))) {
    fields.push(make('label', {}, 'Authorization', make('input', { name: 'authorization', placeholder: 'Bearer …' })));
  }
  const [kind, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  if (kind) {
    const body = make('textarea', { name: 'body', value: beginning(kind, content) });
    body.dataset.kind = kind.includes('*') ? 'application/octet-stream' : kind;
    fields.push(make('label', {}, kind, body));
  }
  const form = make('form', {}, make('h3', {}, 'Try it'), ...fields, make('button', { type: 'submit' }, 'Send'), result);
  form.addEventListener('submit', event => {
    event.preventDefault();
    result.hidden = false;
    result.textContent = '…';
    attempt(method, path, operation, form, result);
  });
  return form;
};

const described = (method, path, operation) => {
  const inside = make('div');
  const parts = () => [
    make('p', {}, operation.description ?? ''),
    operation.parameters ? make('h3', {}, 'Parameters') : null,
    operation.parameters ? table(['Name', 'In', 'Type', 'About'], operation.parameters.map(parameter => [
      make('code', {}, parameter.name), parameter.in + (parameter.required ? ', required' : ''), type(parameter.schema),
      make('p', {}, parameter.description ?? '')])) : null,
    operation.requestBody ? make('h3', {}, 'Content') : null,
    ...contents(operation.requestBody?.content),
    operation.security ? make('p', {}, `Asks for: ${operation.security.flatMap(Object.keys).join(', ')}`) : null,
    make('h3', {}, 'Answers'),
    ...Object.entries(operation.responses).map(([status, response]) => make('details', {},
      make('summary', {}, make('code', {}, status), ` ${response.description}`), ...contents(response.content))),
    attempts(method, path, operation),
  ].filter(Boolean);
  const all = make('details', { class: `operation${operation.deprecated ? ' deprecated' : ''}`, id: operation.operationId },
    make('summary', {}, make('span', { class: `method ${method}` }, method), make('code', {}, path),
      make('span', { class: 'about' }, operation.summary ?? '')), inside);
  // Long documents are made where somebody looks.
  all.addEventListener('toggle', () => { if (all.open && !inside.hasChildNodes()) inside.append(...parts()); });
  return all;
};

const show = () => {
  document.title = `${api.info.title} ${api.info.version}`;
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })));
  const names = [...new Set([...(api.tags ?? []).map(tag => tag.name), ...operations.flatMap(one => one.operation.tags ?? [])])];
  const groups = names.map(name => ({ name, about: api.tags?.find(tag => tag.name === name)?.description,
    all: operations.filter(one => one.operation.tags?.[0] === name) }));
  const others = operations.filter(one => !one.operation.tags?.length);
  if (others.length) groups.push({ name: groups.length ? 'Other' : 'Operations', all: others });
  document.getElementById('page').replaceChildren(
    make('h1', {}, api.info.title, make('small', {}, api.info.version)),
    make('p', {}, api.info.description ?? ''),
    make('p', {}, make('a', { href: 'openapi.json' }, 'openapi.json')),
    ...groups.filter(group => group.all.length).flatMap(group => [
      make('h2', {}, group.name), make('p', {}, group.about ?? ''),
      ...group.all.map(({ method, path, operation }) => described(method, path, operation))]));
  const wanted = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (wanted) { wanted.open = true; wanted.scrollIntoView(); }
};

fetch('openapi.json').then(response => {
  if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
  return response.json();
}).then(document => { api = document; show(); }).catch(error => {
  document.getElementById('problem').textContent = `The document cannot be shown. ${error}`;
});
