// The tools and the prompt that ask the client: its person, its model, its open directories.
//
// Written once for both eras. `rounds` says what is asked, one round after the other: each is a function from
// (arguments, answers so far, can) to questions by key, where can(capability) tells what the client declared. `finish`
// makes the result of the answers. A legacy server sends the questions as requests while the call runs, a modern one
// returns them and is called again; `stateful` tells the latter to hand out a state even when it could do without, and
// `named` tells the former to say its keys, which its protocol has no word for.

import { messages, nothing, oneText, said, text } from './content.mjs';

const NAME = 'What is your name?';
const CAPITAL = 'What is the capital of France?';

// ---- what can be asked ----------------------------------------------------------------------------------------------

export const form = (message, properties, required = []) => ({
  method: 'elicitation/create',
  params: { mode: 'form', message, requestedSchema: { type: 'object', properties, required } },
});
const line = (message, field) => form(message, { [field]: { type: 'string' } }, [field]);
const confirm = (message) => form(message, { ok: { type: 'boolean' } }, ['ok']);
const sample = (prompt, maxTokens) => ({
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: text(prompt) }], maxTokens },
});
const roots = () => ({ method: 'roots/list' });

// ---- how the answers read -------------------------------------------------------------------------------------------

const described = ({ action, content }) => `action=${action}, content=${JSON.stringify(content ?? {})}`;
const generated = ({ content }) => [content].flat().map((block) => block.text ?? block.type).join(' ');
const directories = (answer) => answer.roots.map(({ uri }) => uri).join(', ');

// ---- the fixtures ---------------------------------------------------------------------------------------------------

export const askingTools = [
  {
    name: 'test_sampling',
    description: "Asks the client's model",
    inputSchema: oneText('prompt', 'What to ask'),
    rounds: [({ prompt }) => ({ sampling: sample(prompt, 100) })],
    finish: ({ sampling }) => said(`LLM response: ${generated(sampling)}`),
  },
  {
    name: 'test_elicitation',
    description: 'Asks the person for a name and an address',
    inputSchema: oneText('message', 'What to say'),
    rounds: [
      ({ message }) => {
        const username = { type: 'string', description: "User's response" };
        const email = { type: 'string', description: "User's email address" };
        return { user: form(message, { username, email }, ['username', 'email']) };
      },
    ],
    finish: ({ user }) => said(`User response: ${described(user)}`),
  },
  elicits('test_elicitation_sep1034_defaults', 'Asks with a default value of every type', defaults()),
  elicits('test_elicitation_sep1330_enums', 'Asks with every kind of choice', choices()),
  elicits('test_streaming_elicitation', 'Asks the person to confirm', confirm('Go on?')),
  capital('test_missing_capability', 'Needs a client with a model'),
  capital('test_input_required_result_sampling', "Asks the client's model for a capital"),
  {
    name: 'test_input_required_result_elicitation',
    description: 'Asks for a name and greets',
    named: true,
    rounds: [() => ({ user_name: line(NAME, 'name') })],
    finish: ({ user_name: answer }) =>
      said(answer.content?.name ? `Hello, ${answer.content.name}!` : `No name was given: ${described(answer)}`),
  },
  {
    name: 'test_input_required_result_list_roots',
    description: 'Asks for the open directories',
    rounds: [() => ({ client_roots: roots() })],
    finish: ({ client_roots: answer }) => said(`Open directories: ${directories(answer)}`),
  },
  stateful('test_input_required_result_request_state', 'Asks to confirm, with a state to bring back'),
  stateful('test_input_required_result_tampered_state', 'Asks to confirm, with a state nobody may change'),
  {
    name: 'test_input_required_result_multiple_inputs',
    description: 'Asks three things at once',
    stateful: true,
    rounds: [
      () => ({
        user_name: line(NAME, 'name'),
        greeting: sample('Generate a greeting', 50),
        client_roots: roots(),
      }),
    ],
    finish: ({ user_name: name, greeting, client_roots: open }) =>
      said(`${generated(greeting)} ${name.content?.name ?? 'nobody'}, with ${open.roots.length} open directories`),
  },
  {
    name: 'test_input_required_result_multi_round',
    description: 'Asks two things, one after the other',
    stateful: true,
    rounds: [
      () => ({ step1: line('Step 1: What is your name?', 'name') }),
      () => ({ step2: line('Step 2: What is your favorite color?', 'color') }),
    ],
    finish: ({ step1, step2 }) =>
      said(`${step1.content?.name ?? 'Somebody'} likes ${step2.content?.color ?? 'no color'}`),
  },
  {
    name: 'test_input_required_result_capabilities',
    description: 'Asks whatever this client can answer',
    rounds: [
      (_arguments, _answers, can) => ({
        ...(can('sampling') && { capital_question: sample(CAPITAL, 100) }),
        ...(can('elicitation') && { user_name: line(NAME, 'name') }),
        ...(can('roots') && { client_roots: roots() }),
      }),
    ],
    finish: (answers) => said(`Asked for: ${Object.keys(answers).sort().join(', ')}`),
  },
].map((tool) => ({ inputSchema: nothing(), ...tool }));

export const askingPrompts = [
  {
    name: 'test_input_required_result_prompt',
    description: 'Asks the person for context first',
    rounds: [() => ({ user_context: line('What context should the prompt use?', 'context') })],
    finish: ({ user_context: answer }) => messages(text(`Use this context: ${answer.content?.context ?? 'none'}`)),
  },
];

function elicits(name, description, question) {
  const finish = ({ form: answer }) => said(`Elicitation completed: ${described(answer)}`);
  return { name, description, rounds: [() => ({ form: question })], finish };
}

function capital(name, description) {
  const finish = ({ capital_question: answer }) => said(`The model said: ${generated(answer)}`);
  return { name, description, rounds: [() => ({ capital_question: sample(CAPITAL, 100) })], finish };
}

// Whether the state that came back is good is for the server to say: only then does the answer count.
function stateful(name, description) {
  const finish = ({ confirm: answer }) => said(`state-ok: ${described(answer)}`);
  return { name, description, stateful: true, rounds: [() => ({ confirm: confirm('Please confirm') })], finish };
}

function defaults() {
  return form('Please review and update the form fields with defaults', {
    name: { type: 'string', description: 'User name', default: 'John Doe' },
    age: { type: 'integer', description: 'User age', default: 30 },
    score: { type: 'number', description: 'User score', default: 95.5 },
    status: {
      type: 'string',
      description: 'User status',
      enum: ['active', 'inactive', 'pending'],
      default: 'active',
    },
    verified: { type: 'boolean', description: 'Verification status', default: true },
  });
}

function choices() {
  const options = ['option1', 'option2', 'option3'];
  const titled = (kind) =>
    ['First', 'Second', 'Third'].map((nth, index) => ({ const: `value${index + 1}`, title: `${nth} ${kind}` }));
  return form('Please select options from the enum fields', {
    untitledSingle: { type: 'string', enum: options },
    titledSingle: { type: 'string', oneOf: titled('Option') },
    legacyEnum: {
      type: 'string',
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    },
    untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
    titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
  });
}
