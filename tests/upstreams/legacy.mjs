// The fixtures behind the official TypeScript SDK 1.x: a server of protocol version 2025-11-25 with sessions, which
// asks its client by sending requests while a call runs.
//
//   node legacy.mjs --http     listens on 127.0.0.1, any port, and prints `listening URL` first
//   node legacy.mjs --stdio

import { randomUUID } from 'node:crypto';

import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  ErrorCode,
  GetPromptRequestSchema,
  isInitializeRequest,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListRootsResultSchema,
  ListToolsRequestSchema,
  LoggingLevelSchema,
  McpError,
  ReadResourceRequestSchema,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

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

const RESOURCE_NOT_FOUND = -32002;

const ANSWERS = {
  'elicitation/create': ElicitResultSchema,
  'sampling/createMessage': CreateMessageResultSchema,
  'roots/list': ListRootsResultSchema,
};

const tools = () => [...plainTools, ...askingTools, ...(present.tool ? [dynamicTool] : [])];
const prompts = () => [...plainPrompts, ...askingPrompts, ...(present.prompt ? [dynamicPrompt] : [])];

// Every connected client: a change of a list concerns all of them.
const live = new Set();

const announce = {
  tools: () => live.forEach(({ server }) => server.sendToolListChanged()),
  prompts: () => live.forEach(({ server }) => server.sendPromptListChanged()),
  watched() {
    for (const { server, subscribed } of live) {
      if (subscribed.has(WATCHED)) server.sendResourceUpdated({ uri: WATCHED });
    }
  },
};

// A server for one client.
function serve() {
  // The low-level class: the other one lists no schema that was not made with zod.
  const server = new Server(identity, {
    instructions,
    capabilities: {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { subscribe: true, listChanged: true },
      logging: {},
      completions: {},
    },
  });
  const client = { server, subscribed: new Set(), level: 'debug' };

  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: tools().map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
  }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => {
    const tool = named(tools(), 'tool', params.name);
    const given = params.arguments ?? {};
    demand(tool.inputSchema.required ?? [], given);
    return tool.rounds ? ask(client, tool, given, extra) : tool.call(given, means(client, extra));
  });

  server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: prompts().map(({ name, description, takes = {} }) => ({
      name,
      description,
      arguments: Object.entries(takes).map(([argument, says]) => ({
        name: argument,
        description: says,
        required: true,
      })),
    })),
  }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }, extra) => {
    const prompt = named(prompts(), 'prompt', params.name);
    const given = params.arguments ?? {};
    demand(Object.keys(prompt.takes ?? {}), given);
    return prompt.rounds ? ask(client, prompt, given, extra) : prompt.get(given);
  });

  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: resources.map(({ body, ...shown }) => shown),
  }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [template] }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => read(params.uri));
  server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    read(params.uri);
    client.subscribed.add(params.uri);
    return {};
  });
  server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    client.subscribed.delete(params.uri);
    return {};
  });

  server.setRequestHandler(CompleteRequestSchema, ({ params }) => complete(params));
  server.setRequestHandler(SetLevelRequestSchema, ({ params }) => {
    client.level = params.level;
    return {};
  });

  live.add(client);
  server.onclose = () => live.delete(client);
  return server;
}

function named(all, kind, name) {
  const found = all.find((one) => one.name === name);
  if (!found) throw new McpError(ErrorCode.InvalidParams, `Unknown ${kind}: ${name}`);
  return found;
}

function demand(required, given) {
  const missing = required.filter((name) => given[name] === undefined);
  if (missing.length > 0) throw new McpError(ErrorCode.InvalidParams, `Missing: ${missing.join(', ')}`);
}

function read(uri) {
  const listed = resources.find((one) => one.uri === uri);
  if (listed) return contents(listed);
  const [before, after] = template.uriTemplate.split('{id}');
  const id = uri.startsWith(before) && uri.endsWith(after) ? uri.slice(before.length, -after.length) : '';
  if (id === '' || id.includes('/')) throw new McpError(RESOURCE_NOT_FOUND, 'Resource not found', { uri });
  return made(uri, id);
}

// What a call may do besides answering. It all goes out on the stream of that call.
function means(client, { _meta, closeSSEStream, sendNotification, signal }) {
  const levels = LoggingLevelSchema.options;
  return {
    announce,
    signal,
    hangUp() {
      closeSSEStream?.();
      return closeSSEStream !== undefined;
    },
    async progress(done, message) {
      if (_meta?.progressToken === undefined) return;
      const params = { progressToken: _meta.progressToken, progress: done, total: 100, message };
      await sendNotification({ method: 'notifications/progress', params });
    },
    async log(data) {
      if (levels.indexOf('info') < levels.indexOf(client.level)) return;
      await sendNotification({ method: 'notifications/message', params: { level: 'info', logger: 'fixture', data } });
    },
  };
}

// Asks whatever a fixture wants to know, and lets it finish.
async function ask({ server }, { rounds, finish, named: isNamed }, given, { sendRequest }) {
  const can = (capability) => server.getClientCapabilities()?.[capability] !== undefined;
  const answers = {};
  for (const round of rounds) {
    const questions = Object.entries(round(given, answers, can));
    await Promise.all(
      questions.map(async ([key, question]) => {
        const request = isNamed ? withName(question, key) : question;
        // Sent even to a client that declared no such capability: real servers do, and it is for the client to refuse.
        answers[key] = await sendRequest(request, ANSWERS[question.method]).catch((error) => {
          throw new McpError(ErrorCode.InternalError, `The client refused ${question.method}: ${error.message}`);
        });
      }),
    );
  }
  return finish(answers);
}

// The key by which a modern client behind the gateway is to know the question.
const withName = ({ method, params }, key) => ({
  method,
  params: { ...params, _meta: { 'dev.moongate/inputKey': key } },
});

// What a session has sent, so that a client which lost a stream can have the rest of it.
class Events {
  #all = [];

  async storeEvent(stream, message) {
    this.#all.push({ stream, message });
    return String(this.#all.length);
  }

  async getStreamIdForEventId(id) {
    return this.#all[Number(id) - 1]?.stream;
  }

  async replayEventsAfter(id, { send }) {
    const stream = await this.getStreamIdForEventId(id);
    for (const [index, event] of this.#all.entries()) {
      // The first event of a stream is empty: it is only there for its id.
      const lost = index >= Number(id) && event.stream === stream && event.message.jsonrpc;
      if (lost) await send(String(index + 1), event.message);
    }
    return stream;
  }
}

function serveHttp() {
  const sessions = new Map();
  const app = createMcpExpressApp();
  app.all('/mcp', async (request, response) => {
    const session = request.headers['mcp-session-id'];
    const transport = sessions.get(session) ?? (opens(request) ? await open(sessions) : undefined);
    if (transport) return transport.handleRequest(request, response, request.body);
    const [status, message] = session ? [404, 'Session not found'] : [400, 'There is no session yet'];
    return response.status(status).json({ jsonrpc: '2.0', error: { code: -32000, message }, id: null });
  });
  const listener = app.listen(0, '127.0.0.1', () => {
    console.log(`listening http://127.0.0.1:${listener.address().port}/mcp`);
  });
}

const opens = ({ method, headers, body }) =>
  method === 'POST' && headers['mcp-session-id'] === undefined && isInitializeRequest(body);

async function open(sessions) {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new Events(),
    retryInterval: 50,
    onsessioninitialized: (id) => void sessions.set(id, transport),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await serve().connect(transport);
  return transport;
}

const mode = process.argv[2];
if (mode === '--http') serveHttp();
else if (mode === '--stdio') await serve().connect(new StdioServerTransport());
else throw new Error('usage: node legacy.mjs --http | --stdio');
