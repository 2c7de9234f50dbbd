// Lists the operations of openapi.json and sends requests with the credentials typed above. Nothing is stored.
const find = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

function example(schema, components, depth = 0) {
  if (!schema || schema === true || depth > 6) return null;
  if (schema.$ref) return example(components[schema.$ref.split('/').pop()], components, depth + 1);
  if (schema.readOnly) return undefined;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const choice = schema.anyOf || schema.oneOf;
  if (choice) return example(choice[0], components, depth + 1);
  const type = [].concat(schema.type)[0];
  if (type === 'object') {
    const entries = Object.entries(schema.properties || {})
      .filter(([name]) => (schema.required || []).includes(name) || name === 'spec')
      .map(([name, value]) => [name, example(value, components, depth + 1)]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  }
  return { string: '', integer: schema.minimum ?? 0, number: 0, boolean: false, array: [] }[type] ?? null;
}

function request(base, path, method, operation, fields, body, output) {
  const query = new URLSearchParams();
  let address = path;
  for (const [parameter, input] of fields) {
    if (parameter.in === 'path') address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(parameter.name, input.value);
  }
  const headers = { 'Blaxel-Version': '2026-04-28' };
  if (find('token').value) headers.Authorization = `Bearer ${find('token').value}`;
  if (find('workspace').value) headers['X-Blaxel-Workspace'] = find('workspace').value;
  if (body) headers['Content-Type'] = 'application/json';
  output.textContent = 'waiting …';
  fetch(base + address + (query.size ? `?${query}` : ''), { method: method.toUpperCase(), headers, body: body ? body.value : undefined })
    .then(async (answer) => {
      const text = await answer.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it came */ }
      output.textContent = `${answer.status}\n${shown}`;
    })
    .catch((error) => { output.textContent = String(error); });
}

function form(base, path, method, operation, components) {
  const fields = operation.parameters.filter((parameter) => parameter.name && parameter.in !== 'header')
    .map((parameter) => [parameter, element('input', { title: parameter.description || '' })]);
  const schema = operation.requestBody?.content['application/json'].schema;
  const body = schema && element('textarea', { value: JSON.stringify(example(schema, components), null, 2), ariaLabel: 'body' });
  const output = element('pre', { ariaLive: 'polite' });
  const send = element('button', { type: 'button', textContent: 'Send' });
  send.addEventListener('click', () => request(base, path, method, operation, fields, body, output));
  const labels = fields.map(([parameter, input]) => element('label', {}, parameter.name, input));
  const inputs = element('form', {}, ...labels);
  // The browser would load the page anew, and forget the key.
  inputs.addEventListener('submit', (event) => { event.preventDefault(); send.click(); });
  return element('div', {}, inputs, ...(body ? [body] : []), send, output);
}

fetch('openapi.json').then((answer) => answer.json()).then((document_) => {
  const components = document_.components.schemas;
  const rows = [];
  for (const [path, item] of Object.entries(document_.paths)) {
    const base = item.servers ? '' : '/v0';
    for (const method of ['get', 'post', 'put', 'delete'].filter((name) => item[name])) {
      const operation = item[method];
      const summary = element('summary', {}, element('b', { textContent: method.toUpperCase() }),
        element('code', { textContent: path }), element('span', { textContent: operation.summary }));
      const row = element('details', {}, summary);
      row.addEventListener('toggle', () => { if (row.childElementCount === 1) row.append(form(base, path, method, operation, components)); });
      rows.push([`${path} ${operation.operationId}`.toLowerCase(), row]);
    }
  }
  find('operations').replaceChildren(...rows.map(([, row]) => row));
  find('find').addEventListener('input', (event) => {
    for (const [text, row] of rows) row.hidden = !text.includes(event.target.value.toLowerCase());
  });
});
find('credentials').addEventListener('submit', (event) => event.preventDefault());
