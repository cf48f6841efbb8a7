// The pages of the playbook backend: a list to turn over, select from and delete from.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { HOSTILE, Host, Session, launch, looks } from './host.mjs';

let browser;
let session;
let host;

before(async () => {
  browser = await launch();
  host = await Host.open(browser);
  session = await Session.open();
});
after(() => browser.close());
afterEach(() => assert.deepEqual(host.problems(), []));

// Shows the page that a tool returns.
const show = async (tool, params) => host.show((await session.page(tool, params)).html);

// Presses a button that turns the page, and shows what the gateway answers.
async function turn(page, name, params) {
  await page.getByRole('button', { name }).click();
  assert.deepEqual(await host.asked(), { toolName: 'get_playbook_page', params });
  return show('get_playbook_page', params);
}

const names = (page) => page.getByRole('listitem').getByRole('heading').allTextContents();
const buttons = (page) => page.getByRole('navigation', { name: 'Pages' }).getByRole('button').allTextContents();
const action = { toolName: 'look', purpose: 'see' };
const step = { description: 'Look', action, requiredData: [], outputVariable: 'seen' };

async function create(name, rest = {}) {
  const { isError, content, structuredContent } = await session.call('create_playbook', { name, ...rest });
  assert.equal(isError, false, JSON.stringify(content));
  return structuredContent;
}

// The tests below share one owner and build on one another: first nothing, then seven, then hostile ones.

test('without playbooks the page says so', async () => {
  const page = await show('show_playbooks');
  await page.getByText('No playbooks found').waitFor();
  assert.equal(await page.getByRole('button').count(), 0);
  await host.fits();
  await host.accessible();
});

test('pages are turned forth and back', async () => {
  for (let number = 1; number <= 7; number += 1) {
    await create(`Playbook ${number}`, { goal: `Reach ${number}`, workflow: Array(number % 3).fill(step) });
  }
  let page = await show('show_playbooks', { page: 1, pageSize: 3 });
  const first = await names(page);
  assert.equal(first.length, 3);
  await page.getByText('Page 1 of 3, 7 in all').waitFor();
  assert.deepEqual(await buttons(page), ['Next']);

  page = await turn(page, 'Next page', { page: 2, pageSize: 3 });
  const middle = await names(page);
  assert.deepEqual(await buttons(page), ['Previous', 'Next']);
  page = await turn(page, 'Next page', { page: 3, pageSize: 3 });
  const last = await names(page);
  await page.getByText('Page 3 of 3, 7 in all').waitFor();
  assert.deepEqual(await buttons(page), ['Previous']);
  const all = [...first, ...middle, ...last].sort();
  assert.deepEqual(all, [1, 2, 3, 4, 5, 6, 7].map((number) => `Playbook ${number}`));

  page = await turn(page, 'Previous page', { page: 2, pageSize: 3 });
  assert.deepEqual(await names(page), middle);
  const whole = await show('show_playbooks');
  assert.deepEqual([(await names(whole)).length, await buttons(whole)], [7, []]);
});

test('a playbook is shown with its goal and selected by keyboard', async () => {
  const page = await show('show_playbooks');
  const card = page.getByRole('listitem').filter({ hasText: 'Playbook 4' });
  assert.deepEqual(await card.locator('p').allTextContents(), ['Reach 4', '1 step']);
  await page.getByRole('button', { name: 'Select Playbook 4' }).press('Enter');
  const { toolName, params } = await host.asked();
  assert.equal(toolName, 'select_playbook');
  const selected = await session.call(toolName, params);
  assert.equal(selected.structuredContent.selected, params.id);
  assert.match(selected.content[0].text, /Playbook 4/);
  assert.equal(await page.getByRole('status').textContent(), 'Sent.');
});

test('a playbook is deleted only when the button is pressed twice', async () => {
  const page = await show('show_playbooks');
  const remove = page.getByRole('button', { name: 'Delete Playbook 5' });
  await remove.dblclick();
  assert.equal(await remove.textContent(), 'Delete for good?');
  await host.quiet();
  // Whoever goes elsewhere has thought better of it.
  await page.getByRole('button', { name: 'Select Playbook 5' }).focus();
  assert.equal(await remove.textContent(), 'Delete');
  await remove.press('Enter');
  await page.getByRole('button', { name: 'Delete Playbook 5: Delete for good?' }).press('Enter');
  const { toolName, params } = await host.asked();
  assert.equal(toolName, 'delete_playbook');
  assert.deepEqual((await session.call(toolName, params)).structuredContent, { success: true, id: params.id });
  const left = await names(await show('show_playbooks'));
  assert.ok(left.length === 6 && !left.includes('Playbook 5'), left.join());
});

test('whatever the texts are, they are shown and the right one is selected', async () => {
  const created = new Map();
  for (const [kind, text] of Object.entries(HOSTILE)) {
    created.set(text, await create(text, { goal: `${kind}: ${text}` }));
  }
  const page = await show('show_playbooks', { pageSize: -1 });
  const shown = await names(page);
  for (const [text, { id }] of created) {
    assert.ok(shown.includes(text), text);
    await page.getByRole('listitem').nth(shown.indexOf(text)).getByRole('button', { name: `Select ${text}` }).click();
    assert.deepEqual(await host.asked(), { toolName: 'select_playbook', params: { id } });
  }
  await host.quiet();
});

looks(() => browser, {
  playbooks: ['show_playbooks', { pageSize: -1 }],
  'playbooks-page': ['get_playbook_page', { page: 2, pageSize: 2 }, (page) => page.getByText('Delete').first().click()],
});
