// Tools that run as tasks, and what may be done with those: the extension `io.modelcontextprotocol/tasks`, which the SDK
// leaves to its users.
//
// A tool has `start(arguments)`, which makes a task, or `rounds` and `finish(answers)`, which does after asking; `call`
// if it can also answer at once, for clients that know no tasks.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { ProtocolError } from '@modelcontextprotocol/server';

import { failed, nothing, oneText, said } from './content.mjs';
import { form } from './questions.mjs';

export const TASKS = 'io.modelcontextprotocol/tasks';

const MISSING_CAPABILITY = -32021;
const INVALID_PARAMS = -32602;
const INTERNAL = -32603;

// How long a task is kept after it was made, and how often whoever waits for it should look.
const TTL = 600_000;
const POLL = 100;
// How long the failing jobs work before they fail.
const WORK = 1_000;

const tasks = new Map();

class Task {
  id = randomUUID();
  status = 'working';
  createdAt = new Date();
  lastUpdatedAt = this.createdAt;
  outcome = {};
  questions = {};
  answers = {};
  #cancelled = new AbortController();
  #answered = () => {};

  constructor(work) {
    tasks.set(this.id, this);
    setTimeout(() => tasks.delete(this.id), TTL).unref();
    work(this).then(
      (result) => this.#end('completed', { result }),
      ({ code = INTERNAL, message }) => this.#end('failed', { error: { code, message } }),
    );
  }

  get signal() {
    return this.#cancelled.signal;
  }

  get hasEnded() {
    return ['completed', 'failed', 'cancelled'].includes(this.status);
  }

  get description() {
    const { id: taskId, status, createdAt, lastUpdatedAt } = this;
    const times = { createdAt: createdAt.toISOString(), lastUpdatedAt: lastUpdatedAt.toISOString() };
    return { taskId, status, ...times, ttlMs: TTL, pollIntervalMs: POLL };
  }

  get detail() {
    return { ...this.description, ...this.outcome, ...(this.status === 'input_required' && { inputRequests: this.questions }) };
  }

  // Waits for the answers to questions by key.
  async ask(questions) {
    this.questions = questions;
    this.#become('input_required');
    await new Promise((resolve) => (this.#answered = resolve));
    this.#become('working');
    return this.answers;
  }

  // Takes the answers to what is asked; others are nobody's.
  update(responses) {
    for (const [key, answer] of Object.entries(responses)) {
      if (!(key in this.questions)) continue;
      this.answers[key] = answer;
      delete this.questions[key];
    }
    if (this.status === 'input_required' && Object.keys(this.questions).length === 0) this.#answered();
  }

  cancel() {
    this.#end('cancelled');
    this.#cancelled.abort();
  }

  #become(status) {
    if (this.hasEnded) return;
    this.status = status;
    this.lastUpdatedAt = new Date();
  }

  #end(status, outcome = {}) {
    if (this.hasEnded) return;
    this.#become(status);
    this.outcome = outcome;
  }
}

// The result of a call that has made a task.
const made = (work) => ({ resultType: 'task', ...new Task(work).description });

const slow = {
  type: 'object',
  properties: { seconds: { type: 'number', minimum: 0, maximum: 3600 }, label: { type: 'string' } },
  required: ['seconds'],
};
const confirmation = (message) => form(message, { confirm: { type: 'boolean' } });

export const taskTools = [
  tool('greet', 'Greets somebody, at once', { call: ({ name }) => said(`Hello, ${name}!`) }, oneText('name', 'Whom')),
  tool(
    'slow_compute',
    'Computes for a while',
    {
      start: ({ seconds, label }) => made(({ signal }) => computed(seconds, label, signal)),
      call: ({ seconds, label }, { signal }) => computed(seconds, label, signal),
    },
    slow,
  ),
  tool('failing_job', 'Runs as a task and fails', {
    start: () =>
      made(async () => {
        await sleep(WORK);
        return failed('The job failed, as it always does');
      }),
  }),
  tool('protocol_error_job', 'Runs as a task and breaks down', {
    start: () =>
      made(async () => {
        await sleep(WORK);
        throw new ProtocolError(INTERNAL, 'The job broke down, as it always does');
      }),
  }),
  tool(
    'confirm_delete',
    'Asks for a confirmation while it runs as a task',
    {
      start: ({ filename }) =>
        made(async (task) => {
          const { confirm } = await task.ask({ confirm: confirmation(`Delete ${filename}?`) });
          const agreed = confirm.action === 'accept' && confirm.content?.confirm === true;
          return said(agreed ? `Deleted ${filename}` : `Kept ${filename}`);
        }),
    },
    oneText('filename', 'The file'),
  ),
  tool('multi_input', 'Asks for two confirmations at once while it runs as a task', {
    start: () =>
      made(async (task) => {
        const answers = await task.ask({ first: confirmation('The first?'), second: confirmation('The second?') });
        return said(`Answered: ${Object.keys(answers).sort().join(', ')}`);
      }),
  }),
  tool('test_tool_with_task', 'Asks for a name, then runs as a task', {
    rounds: [() => ({ user_name: form('What is your name?', { name: { type: 'string' } }) })],
    finish: ({ user_name: { content } }) =>
      made(async () => {
        await sleep(POLL);
        return said(`Hello, ${content?.name}!`);
      }),
  }),
];

async function computed(seconds, label, signal) {
  await sleep(seconds * 1000, undefined, { signal });
  return said(`Computed ${label ?? 'something'} for ${seconds} s`);
}

function tool(name, description, does, inputSchema = nothing()) {
  return { name, description, inputSchema, ...does };
}

// Whether a request says that its client knows tasks.
export const knowsTasks = (declared) => declared?.extensions?.[TASKS] !== undefined;

// What a client is told that should know tasks and does not.
export function unknowing() {
  const requiredCapabilities = { extensions: { [TASKS]: {} } };
  return new ProtocolError(MISSING_CAPABILITY, 'This needs a client that knows tasks', { requiredCapabilities });
}

// The methods of the extension: what each makes of a task.
export const taskMethods = {
  'tasks/get': (task) => task.detail,
  'tasks/update': (task, responses) => void task.update(responses ?? {}),
  'tasks/cancel': (task) => void task.cancel(),
};

export function findTask(id) {
  const task = tasks.get(id);
  if (!task) throw new ProtocolError(INVALID_PARAMS, 'There is no such task');
  return task;
}
