// The fixtures behind the official TypeScript SDK 2.x: a server of protocol version 2026-07-28 and of no other, which
// asks its client by returning the questions as a result (MRTR) and being called again.
//
//   node modern.mjs --http     listens on 127.0.0.1, any port, and prints `listening URL` first
//   node modern.mjs --stdio

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';

import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node';
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  createMcpHandler,
  createRequestStateCodec,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  McpServer,
  ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

import {
  complete,
  contents,
  dynamicPrompt,
  dynamicTool,
  identity,
  instructions,
  made,
  plainPrompts,
  plainTools,
  present,
  resources,
  template,
  WATCHED,
} from './fixtures.mjs';
import { askingPrompts, askingTools } from './questions.mjs';
import { findTask, knowsTasks, taskMethods, TASKS, taskTools, unknowing } from './tasks.mjs';

// What never changes may be kept, by anybody.
const FOREVER = { ttlMs: 3_600_000, cacheScope: 'public' };

// Seals what a call remembers between two rounds; the SDK refuses what does not open again.
const states = createRequestStateCodec({ key: randomBytes(32) });

// A server for one request over HTTP, or for one connection over stdio. Changes are told to `everybody`, which over
// stdio is whoever is connected.
function serve(everybody) {
  const server = new McpServer(identity, {
    instructions,
    capabilities: {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { subscribe: true, listChanged: true },
      logging: {},
      completions: {},
      extensions: { [TASKS]: {} },
    },
    requestState: { verify: states.verify },
  });
  const means = (context) => ({ ...doing(context), announce: everybody ?? connected });

  for (const tool of [...plainTools, ...askingTools, ...taskTools]) addTool(server, tool, means);
  addTasks(server);
  for (const prompt of [...plainPrompts, ...askingPrompts]) addPrompt(server, prompt);
  const extraTool = addTool(server, dynamicTool, means);
  const extraPrompt = addPrompt(server, dynamicPrompt);
  addResources(server);
  server.server.setRequestHandler('completion/complete', ({ params }) => complete(params));

  const connected = {
    tools: () => extraTool.update({ enabled: present.tool }),
    prompts: () => extraPrompt.update({ enabled: present.prompt }),
    watched: () => server.server.sendResourceUpdated({ uri: WATCHED }),
  };
  connected.tools();
  connected.prompts();
  return server;
}

function addTool(server, tool, means) {
  const { name, description, inputSchema } = tool;
  return server.registerTool(name, { description, inputSchema: fromJsonSchema(inputSchema) }, (given, context) => {
    if (tool.rounds) return ask(tool, given, context);
    if (tool.start && knowsTasks(declared(context))) return tool.start(given);
    return tool.call(given, means(context));
  });
}

// The SDK makes a result of whatever a tool throws, and content a part of every result, so that its own handler cannot
// refuse a client that knows no tasks, and would make more of a task than it is.
function addTasks({ server }) {
  const needsTask = (name) => taskTools.some((tool) => tool.name === name && !tool.call);
  const call = server._requestHandlers.get('tools/call');
  server._requestHandlers.set('tools/call', async (request, context) => {
    if (needsTask(request.params.name) && !knowsTasks(declared(context))) throw unknowing();
    const result = await call(request, context);
    if (result.resultType === 'task') delete result.content;
    return result;
  });
  const params = fromJsonSchema({ type: 'object', properties: { taskId: { type: 'string' } }, required: ['taskId'] });
  for (const [method, act] of Object.entries(taskMethods)) {
    server.setRequestHandler(method, { params }, ({ taskId, inputResponses }, context) => {
      if (!knowsTasks(declared(context))) throw unknowing();
      return act(findTask(taskId), inputResponses ?? context.mcpReq.inputResponses) ?? {};
    });
  }
}

// What the client of a request says that it can do.
const declared = ({ mcpReq }) => mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};

function addPrompt(server, prompt) {
  const { name, description, takes = {} } = prompt;
  if (prompt.rounds) return server.registerPrompt(name, { description }, (context) => ask(prompt, {}, context));
  const required = Object.keys(takes);
  if (required.length === 0) return server.registerPrompt(name, { description }, () => prompt.get({}));
  const properties = Object.fromEntries(
    Object.entries(takes).map(([argument, says]) => [argument, { type: 'string', description: says }]),
  );
  const argsSchema = fromJsonSchema({ type: 'object', properties, required });
  return server.registerPrompt(name, { description, argsSchema }, (given) => prompt.get(given));
}

function addResources(server) {
  for (const resource of resources) {
    const { uri, name, description, mimeType } = resource;
    const cacheHint = uri === WATCHED ? undefined : FOREVER;
    server.registerResource(name, uri, { description, mimeType, cacheHint }, () => contents(resource));
  }
  const { uriTemplate, name, ...shown } = template;
  server.registerResource(name, new ResourceTemplate(uriTemplate, { list: undefined }), shown, (uri, { id }) =>
    made(uri.href, id),
  );
}

// What a call may do besides answering, on its own stream.
function doing({ mcpReq }) {
  return {
    signal: mcpReq.signal,
    hangUp() {}, // no such thing in this era: whoever loses the stream has cancelled the call
    async progress(done, message) {
      const progressToken = mcpReq._meta?.progressToken;
      if (progressToken === undefined) return;
      const params = { progressToken, progress: done, total: 100, message };
      await mcpReq.notify({ method: 'notifications/progress', params });
    },
    log: (words) => mcpReq.log('info', words, 'fixture'),
  };
}

// Goes through a fixture's rounds as far as the answers at hand reach: the ones of earlier rounds are in the state, the
// ones of the last round came with this request. Returns the next questions, or the result.
async function ask({ rounds, finish, stateful }, given, context) {
  const { mcpReq } = context;
  const can = (capability) => declared(context)[capability] !== undefined;
  const answers = mcpReq.requestState()?.answers ?? {};
  for (const round of rounds) {
    const open = {};
    for (const [key, question] of Object.entries(round(given, answers, can))) {
      answers[key] ??= answered(mcpReq.inputResponses, key, question);
      if (answers[key] === undefined) open[key] = question;
    }
    if (Object.keys(open).length === 0) continue;
    const remembers = stateful || Object.values(answers).some((answer) => answer !== undefined);
    const requestState = remembers ? await states.mint({ answers }) : undefined;
    return inputRequired({ inputRequests: open, requestState });
  }
  return finish(answers);
}

// The answer to a question, if there is one of the right kind. A form that was accepted must be filled in as asked.
function answered(responses, key, { method, params }) {
  const { kind, action, content, roots, result } = inputResponse(responses, key);
  if (method === 'roots/list') return kind === 'roots' ? { roots } : undefined;
  if (method === 'sampling/createMessage') return kind === 'sampling' ? result : undefined;
  if (kind !== 'elicit') return undefined;
  if (action !== 'accept') return { action };
  const filled = acceptedContent(responses, key, fromJsonSchema(params.requestedSchema));
  return filled && { action, content };
}

function serveHttp() {
  // Modern only: who says `initialize` is told which version there is.
  const handler = createMcpHandler(() => serve(everybody), { legacy: 'reject' });
  const everybody = {
    tools: () => handler.notify.toolsChanged(),
    prompts: () => handler.notify.promptsChanged(),
    watched: () => handler.notify.resourceUpdated(WATCHED),
  };
  const handle = toNodeHandler(handler);
  const guards = [localhostHostValidation(), localhostOriginValidation()];
  const listener = createServer((request, response) => {
    if (!guards.every((admits) => admits(request, response))) return;
    if (new URL(request.url, 'http://localhost').pathname === '/mcp') handle(request, response);
    else response.writeHead(404).end();
  });
  listener.listen(0, '127.0.0.1', () => {
    console.log(`listening http://127.0.0.1:${listener.address().port}/mcp`);
  });
}

const mode = process.argv[2];
if (mode === '--http') serveHttp();
else if (mode === '--stdio') serveStdio(() => serve(), { legacy: 'reject' });
else throw new Error('usage: node modern.mjs --http | --stdio');
