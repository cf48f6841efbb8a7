// What both servers offer without asking anybody: tools, prompts, resources, completions, and two lists that change.
//
// A tool's `call` gets its arguments and what this call may do: progress(done, message), log(words), hangUp(), which tells
// whether it could, announce.{tools,prompts,watched}(), signal.

import { setTimeout as sleep } from 'node:timers/promises';

import { PNG, audio, blocks, failed, image, messages, nothing, oneText, resource, said, text } from './content.mjs';

export const identity = { name: 'moongate-test-upstream', version: '1.0.0' };
export const instructions = 'Fixtures of the MCP conformance suite.';

// Between two notes, so that a client sees them come one by one.
const BEAT = 50;
// After the connection was ended: long enough for the client to notice before the result is there.
const AWAY = 100;
// Where no server can end it: long enough for the gateway to (`poll_after`), but not for it to end the next one as well.
const LONG = 3500;

// The first must succeed without arguments: the suite calls whatever comes first.
export const plainTools = [
  tool('test_simple_text', 'Returns one text', () => said('This is a simple text response for testing.')),
  tool('test_image_content', 'Returns an image', () => blocks(image())),
  tool('test_audio_content', 'Returns a sound', () => blocks(audio())),
  tool('test_embedded_resource', 'Returns an embedded resource', () =>
    blocks(resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  ),
  tool('test_multiple_content_types', 'Returns a text, an image and a resource', () => {
    const data = JSON.stringify({ test: 'data', value: 123 });
    const embedded = resource('test://mixed-content-resource', 'application/json', data);
    return blocks(text('Multiple content types test:'), image(), embedded);
  }),
  tool('test_error_handling', 'Always fails', () => failed('This tool intentionally returns an error for testing')),
  tool('test_tool_with_progress', 'Reports progress three times while it works', async (_arguments, { progress }) => {
    await progress(0, 'Started');
    await sleep(BEAT);
    await progress(50, 'Half done');
    await sleep(BEAT);
    await progress(100, 'Done');
    return said('Reported progress three times');
  }),
  tool('test_tool_with_logging', 'Logs three lines while it works', async (_arguments, { log }) => {
    await log('Tool execution started');
    await sleep(BEAT);
    await log('Tool processing data');
    await sleep(BEAT);
    await log('Tool execution completed');
    return said('Logged three lines');
  }),
  tool('test_logging_tool', 'Logs one line and is done', async (_arguments, { log }) => {
    await log('One line for whoever asked for logs');
    return said('Logged one line');
  }),
  tool('test_reconnection', 'Ends the connection while it works; the result waits', async (_arguments, { hangUp }) => {
    await sleep(hangUp() ? AWAY : LONG);
    return said('Reconnection test completed: this result was made after the connection ended');
  }),
  tool('test_trigger_tool_change', 'Changes the list of tools', (_arguments, { announce }) => {
    present.tool = !present.tool;
    announce.tools();
    return said('The list of tools changed');
  }),
  tool('test_trigger_prompt_change', 'Changes the list of prompts', (_arguments, { announce }) => {
    present.prompt = !present.prompt;
    announce.prompts();
    return said('The list of prompts changed');
  }),
  tool('test_trigger_resource_update', 'Announces an update of the watched resource', (_arguments, { announce }) => {
    announce.watched();
    return said('The watched resource was updated');
  }),
  tool('test_header_param', 'Returns its argument, which a header has to repeat', ({ region }) => said(region), {
    type: 'object',
    properties: { region: { type: 'string', description: 'Any text', 'x-mcp-header': 'Region' } },
    required: ['region'],
  }),
  tool('test_echo', 'Returns its argument', ({ text: words }) => said(words), oneText('text', 'Any text')),
  tool(
    'test_slow',
    'Answers after a while',
    async ({ milliseconds }, { signal }) => {
      await sleep(milliseconds, undefined, { signal });
      return said(`Waited for ${milliseconds} ms`);
    },
    {
      type: 'object',
      properties: { milliseconds: { type: 'integer', minimum: 0, maximum: 600000 } },
      required: ['milliseconds'],
    },
  ),
  // The suite compares this schema word by word.
  tool(
    'json_schema_2020_12_tool',
    'Tool with JSON Schema 2020-12 features',
    (given) => said(`Called with ${JSON.stringify(given)}`),
    {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      $defs: {
        address: {
          $anchor: 'addressDef',
          type: 'object',
          properties: { street: { type: 'string' }, city: { type: 'string' } },
        },
      },
      properties: {
        name: { type: 'string' },
        address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] },
        phone: { type: 'string' },
        email: { type: 'string' },
      },
      allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
      if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
      then: { required: ['phone'] },
      else: { required: ['email'] },
      additionalProperties: false,
    },
  ),
];

export const plainPrompts = [
  prompt('test_simple_prompt', 'One message', {}, () => messages(text('This is a simple prompt for testing.'))),
  prompt(
    'test_prompt_with_arguments',
    'Two arguments in one message',
    { arg1: 'First test argument', arg2: 'Second test argument' },
    ({ arg1, arg2 }) => messages(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  ),
  prompt(
    'test_prompt_with_embedded_resource',
    'A resource in a message',
    { resourceUri: 'URI of the resource to embed' },
    ({ resourceUri }) =>
      messages(
        resource(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
        text('Please process the embedded resource above.'),
      ),
  ),
  prompt('test_prompt_with_image', 'An image in a message', {}, () =>
    messages(image(), text('Please analyze the image above.')),
  ),
];

// There after an odd number of changes of the list.
export const present = { tool: false, prompt: false };
export const dynamicTool = tool('test_dynamic_tool', 'There for now', () => said('There for now'));
export const dynamicPrompt = prompt('test_dynamic_prompt', 'There for now', {}, () => messages(text('There for now')));

export const WATCHED = 'test://watched-resource';

export const resources = [
  {
    uri: 'test://static-text',
    name: 'Static text',
    description: 'Text that never changes',
    mimeType: 'text/plain',
    body: { text: 'This is the content of the static text resource.' },
  },
  {
    uri: 'test://static-binary',
    name: 'Static binary',
    description: 'An image that never changes',
    mimeType: 'image/png',
    body: { blob: PNG },
  },
  {
    uri: WATCHED,
    name: 'Watched resource',
    description: 'Something to subscribe to',
    mimeType: 'text/plain',
    body: { text: 'Watched resource content' },
  },
];

export const template = {
  uriTemplate: 'test://template/{id}/data',
  name: 'Template data',
  description: 'Data made from the id',
  mimeType: 'application/json',
};

// The result of reading a listed resource, and one the template made.
export const contents = ({ uri, mimeType, body }) => ({ contents: [{ uri, mimeType, ...body }] });
export function made(uri, id) {
  const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
  return { contents: [{ uri, mimeType: template.mimeType, text: data }] };
}

// The values that continue what was typed so far.
export function complete({ ref, argument }) {
  const known = {
    'test_prompt_with_arguments arg1': ['paris', 'park', 'party', 'test', 'testing'],
    'test_prompt_with_arguments arg2': ['second'],
    [`${template.uriTemplate} id`]: ['123', '456'],
  };
  const all = known[`${ref.name ?? ref.uri} ${argument.name}`] ?? [];
  const values = all.filter((value) => value.startsWith(argument.value));
  return { completion: { values, total: values.length, hasMore: false } };
}

function tool(name, description, call, inputSchema = nothing()) {
  return { name, description, inputSchema, call };
}

// `takes` describes the arguments by name; all are required.
function prompt(name, description, takes, get) {
  return { name, description, takes, get };
}
