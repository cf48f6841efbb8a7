// The pages of the ui backend, used as a person uses them: prompts, pauses and charts.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
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

// As long as a label may be.
const short = (text) => [...text].slice(0, 256).join('');

// Asks and shows the question: its page, and what its controls must send.
async function ask(type, prompt, options) {
  const { told, html } = await session.page('prompt_user', { type, prompt, options });
  return { page: await host.show(html), messageId: told.messageId };
}

async function replied(params) {
  const { isError, structuredContent } = await host.obey(session, 'reply_prompt', params);
  assert.equal(isError, false);
  return structuredContent;
}

describe('prompts', () => {
  test('a text is answered by keyboard alone, once', async () => {
    const { page, messageId } = await ask('text', 'Your name?');
    await page.getByRole('dialog', { name: 'Your name?' }).waitFor();
    await host.tab();
    await host.keyboard.type('Ada "Countess" <Lovelace>');
    await host.keyboard.press('Enter');
    const params = { messageId, answer: 'Ada "Countess" <Lovelace>' };
    const { answer, prompt } = await replied(params);
    assert.deepEqual({ answer, prompt }, { answer: params.answer, prompt: 'Your name?' });
    assert.equal(await page.getByRole('status').textContent(), 'Sent.');

    // The page is done with, and so is the prompt, should a host send the answer again.
    for (const name of ['Send', 'Cancel']) assert.ok(await page.getByRole('button', { name }).isDisabled());
    assert.ok(await page.getByRole('textbox', { name: 'Your name?' }).isDisabled());
    await host.keyboard.press('Enter');
    await host.keyboard.press('Escape');
    await host.quiet();
    const again = await session.call('reply_prompt', params);
    assert.equal(again.isError, true);
    assert.match(again.content[0].text, /expired or was already answered/);
  });

  test('a text is answered by clicking, however often', async () => {
    const { page, messageId } = await ask('text', 'Your name?');
    await page.getByRole('textbox', { name: 'Your name?' }).fill('Ada');
    await page.getByRole('button', { name: 'Send' }).dblclick();
    assert.equal((await replied({ messageId, answer: 'Ada' })).answer, 'Ada');
    await host.quiet();
  });

  test('the keys of an input method are left to it', async () => {
    const { page, messageId } = await ask('text', '이름이 무엇입니까?');
    const name = page.getByRole('textbox', { name: '이름이 무엇입니까?' });
    await name.fill('아');
    for (const key of ['Enter', 'Escape']) {
      await name.dispatchEvent('keydown', { key, isComposing: true });
      await name.dispatchEvent('keydown', { key, keyCode: 229 });
    }
    await host.quiet();
    await name.press('Enter');
    assert.equal((await replied({ messageId, answer: '아' })).answer, '아');
  });

  test('one of several is chosen by keyboard alone', async () => {
    const { page, messageId } = await ask('select', 'Which?', ['red', 'green', 'blue']);
    const group = page.getByRole('group', { name: 'Which?' });
    assert.equal(await group.getByRole('radio').count(), 3);
    await host.tab();
    await host.keyboard.press('Enter');
    await page.getByRole('status').filter({ hasText: 'Choose one first.' }).waitFor();
    await host.quiet();
    await host.keyboard.press('Space');
    await host.keyboard.press('ArrowDown');
    await page.getByRole('radio', { name: 'green', checked: true }).waitFor();
    await host.keyboard.press('Enter');
    assert.equal((await replied({ messageId, answer: 'green' })).answer, 'green');
  });

  test('one of several is chosen by clicking its words', async () => {
    const { page, messageId } = await ask('select', 'Which?', ['red', 'green']);
    await page.getByText('red').click();
    await page.getByRole('button', { name: 'Send' }).click();
    assert.equal((await replied({ messageId, answer: 'red' })).answer, 'red');
  });

  test('several are chosen, by mouse and keyboard, and taken back', async () => {
    const { page, messageId } = await ask('multiselect', 'Which?', ['red', 'green', 'blue']);
    for (const name of ['blue', 'green', 'red']) await page.getByRole('checkbox', { name }).click();
    await page.getByRole('checkbox', { name: 'green' }).focus();
    await host.keyboard.press('Space');
    await host.keyboard.press('Enter');
    const { answer } = await replied({ messageId, answer: ['red', 'blue'] });
    assert.deepEqual(answer, ['red', 'blue']);
  });

  test('none of several is an answer too', async () => {
    const { page, messageId } = await ask('multiselect', 'Which?', ['red', 'green']);
    await page.getByRole('button', { name: 'Send' }).click();
    const result = await host.obey(session, 'reply_prompt', { messageId, answer: [] });
    assert.deepEqual(result.structuredContent.answer, []);
    assert.match(result.content[0].text, /chose none/);
  });

  for (const [how, act] of [
    ['the button', (page) => page.getByRole('button', { name: 'Cancel' }).click()],
    ['Escape', (page) => page.getByRole('textbox').press('Escape')],
  ]) {
    test(`a prompt is cancelled by ${how}, and then not answered`, async () => {
      const { page, messageId } = await ask('text', 'Sure?');
      await page.getByRole('textbox').fill('never sent');
      await act(page);
      const { answer, cancelled } = await replied({ messageId, cancelled: true });
      assert.deepEqual({ answer, cancelled }, { answer: null, cancelled: true });
      assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled());
      await host.keyboard.press('Escape');
      await host.quiet();
    });
  }

  test('whatever the texts are, they are shown and come back unchanged', async () => {
    // HTML turns line ends into others and knows no NUL: neither may change which option was chosen.
    const options = [...Object.values(HOSTILE), 'a\r\nb\0c'];
    for (const [index, prompt] of options.entries()) {
      const { page, messageId } = await ask('multiselect', prompt, options);
      if (!prompt.includes('\0')) assert.equal(await page.getByRole('heading').textContent(), prompt);
      await page.getByRole('checkbox').nth(index).check();
      await page.getByRole('button', { name: 'Send' }).click();
      const { answer, prompt: asked } = await replied({ messageId, answer: [prompt] });
      assert.deepEqual({ answer, asked }, { answer: [prompt], asked: prompt });
    }
  });

  test('a long answer in any script arrives whole', async () => {
    const { page, messageId } = await ask('text', 'Tell me');
    const answer = Object.values(HOSTILE).join(' ');
    await page.getByRole('textbox').fill(answer);
    await page.getByRole('textbox').press('Enter');
    assert.equal((await replied({ messageId, answer })).answer, answer);
  });
});

test('a pause ends when the person says so', async () => {
  const params = { message: 'Log in, then continue', resumeInstruction: `Go on ${HOSTILE.attribute}` };
  const { told, html } = await session.page('wait_for_user_resume', params);
  const page = await host.show(html);
  await page.getByRole('dialog', { name: params.message }).getByText(params.resumeInstruction).waitFor();
  await host.tab();
  await host.keyboard.press('Enter');
  const { resumeInstruction } = params;
  const wanted = { resumeInstruction, startedAt: told.startedAt };
  const { isError, structuredContent } = await host.obey(session, 'resume_from_wait', wanted);
  assert.deepEqual({ isError, resumed: structuredContent.resumed }, { isError: false, resumed: true });
  assert.equal(structuredContent.resumeInstruction, resumeInstruction);
  assert.ok(await page.getByRole('button', { name: 'Continue' }).isDisabled());
  await host.quiet();
});

describe('charts', () => {
  async function draw(type, data, title) {
    const { html } = await session.page('visualize_data', { type, data, title });
    return host.show(html);
  }
  const points = (values) => values.map((value, index) => ({ label: `Day ${index + 1}`, value }));
  // What is drawn of each point, in the order of the data, with its place on the screen.
  const marks = (page, shape) =>
    page.locator(`${shape}.mark`).evaluateAll((found) =>
      found.map((mark) => {
        const { x, y, width, height } = mark.getBoundingClientRect();
        return { x, y, width, height, tip: mark.querySelector('title').textContent };
      }),
    );
  const words = (page, place) => page.locator(`.${place} span:visible`).allTextContents();
  const near = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1, `${actual} is not ${expected}`);

  test('bars are as high as their values, up and down from zero', async () => {
    const page = await draw('bar', points([10, 20, -10, 0]), 'Balance');
    await page.getByRole('img', { name: 'bar chart "Balance" of 4 values' }).waitFor();
    const bars = await marks(page, 'rect');
    assert.deepEqual(bars.map(({ tip }) => tip), ['Day 1: 10', 'Day 2: 20', 'Day 3: -10', 'Day 4: 0']);
    const [ten, twenty, down, none] = bars;
    near(twenty.height, 2 * ten.height);
    near(down.height, ten.height);
    near(ten.y + ten.height, down.y);
    assert.ok(none.height > 0.5 && none.height < 4);
    for (const { width } of bars) near(width, ten.width);
    assert.deepEqual(await words(page, 'labels'), ['Day 1', 'Day 2', 'Day 3', 'Day 4']);
    assert.deepEqual(await words(page, 'ticks'), ['20', '10', '0', '-10']);
  });

  test('numbers stand at the lines they belong to, and labels below their bars', async () => {
    const page = await draw('bar', points([1, 2, 3, 4]));
    const middles = (found, side) =>
      found.map((element) => {
        const { top, bottom, left, right } = element.getBoundingClientRect();
        return side === 'y' ? (top + bottom) / 2 : (left + right) / 2;
      });
    const numbers = await page.locator('.ticks span').evaluateAll(middles, 'y');
    const lines = await page.locator('.axis').evaluateAll(middles, 'y');
    assert.equal(numbers.length, 5);
    for (const [index, line] of lines.entries()) near(numbers[index], line);
    const labels = await page.locator('.labels span').evaluateAll(middles, 'x');
    for (const [index, { x, width }] of (await marks(page, 'rect')).entries()) near(labels[index], x + width / 2);
  });

  test('a line goes through its points', async () => {
    const page = await draw('line', points([1, 3, 2]), 'Trend');
    await page.getByRole('img', { name: 'line chart "Trend" of 3 values' }).waitFor();
    const [low, high, middle] = await marks(page, 'circle');
    near(middle.y, (low.y + high.y) / 2);
    near(high.x - low.x, middle.x - high.x);
    const line = await page.locator('polyline').evaluate((polyline) =>
      [...polyline.points].map((point) => point.matrixTransform(polyline.getScreenCTM())).map(({ x, y }) => ({ x, y })),
    );
    for (const [index, { x, y, width, height }] of [low, high, middle].entries()) {
      near(line[index].x, x + width / 2);
      near(line[index].y, y + height / 2);
    }
  });

  test('a line of one point is a dot in the middle', async () => {
    const page = await draw('line', points([42]));
    await page.getByRole('img', { name: 'line chart of 1 value' }).waitFor();
    const [dot, ...more] = await marks(page, 'circle');
    assert.deepEqual(more, []);
    const plot = await page.locator('.plot').boundingBox();
    near(dot.x + dot.width / 2, plot.x + plot.width / 2);
    near(dot.y + dot.height / 2, plot.y + plot.height / 2);
    assert.deepEqual([await words(page, 'ticks'), await words(page, 'labels')], [['42'], ['Day 1']]);
  });

  test('as many points as there may be keep inside, with labels that do not touch', async () => {
    const values = Array.from({ length: 500 }, (_, index) => 1e300 * Math.sin(index / 20));
    for (const [type, shape] of [['bar', 'rect'], ['line', 'circle']]) {
      const page = await draw(type, points(values));
      const plot = await page.locator('.plot').boundingBox();
      const found = await marks(page, shape);
      assert.equal(found.length, 500);
      for (const { x, y, width, height } of found) {
        assert.ok(x > plot.x - 3 && x + width < plot.x + plot.width + 3);
        assert.ok(y > plot.y - 3 && y + height < plot.y + plot.height + 3);
      }
      assert.deepEqual((await words(page, 'labels')).slice(0, 2), ['Day 1', 'Day 51']);
      await host.fits();
    }
  });

  test('the values can be read in full', async () => {
    const data = Object.values(HOSTILE).map((text) => ({ label: short(text), value: 1234567.5 }));
    const page = await draw('bar', data, HOSTILE.markup);
    assert.equal(await page.getByRole('heading').textContent(), HOSTILE.markup);
    assert.ok(await page.getByRole('table').isHidden());
    await host.tab();
    await host.keyboard.press('Enter');
    await page.getByRole('table').waitFor();
    assert.deepEqual(await page.getByRole('rowheader').allTextContents(), data.map(({ label }) => label));
    assert.deepEqual(await page.getByRole('cell').allTextContents(), data.map(() => '1,234,567.5'));
    await host.fits();
  });
});

test('nothing runs or loads, even if markup got onto a page', async () => {
  await ask('text', 'Your name?');
  const elsewhere = 'http://elsewhere.invalid/';
  await host.inside(async (root, src) => {
    const script = (properties) => Object.assign(document.createElement('script'), properties);
    document.body.append(script({ textContent: 'console.log("inline")' }), script({ src }));
    document.body.insertAdjacentHTML('beforeend', `<img src="${src}" onerror="console.log('handler')">`);
    document.body.insertAdjacentHTML('beforeend', `<a href="javascript:console.log('address')">x</a>`);
    document.querySelector('a').click();
    await fetch(src).catch(() => {});
  }, elsewhere);
  await host.quiet();
  // The browser says what it has refused. Nothing else was said, and nothing was asked for.
  const said = host.problems();
  for (const line of said) assert.match(line, /^error: .*Content Security Policy/);
  for (const attempt of ['inline script', 'the script', 'event handler', 'JavaScript URL', 'the image', 'Connecting']) {
    assert.ok(said.some((line) => line.includes(attempt)), `${attempt} was let through: ${said.join('\n')}`);
  }
});

const week = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];
const hours = Array.from({ length: 48 }, (_, hour) => `Hour ${hour}`);
const cities = ['서울특별시', '부산광역시', '인천광역시', '대구광역시', '대전광역시', '광주광역시', '울산광역시', '세종특별자치시'];
const hostile = Object.values(HOSTILE);

const prompt = (type, question, options) => ['prompt_user', { type, prompt: question, options }];
const wait = (message, resumeInstruction) => ['wait_for_user_resume', { message, resumeInstruction }];
const chart = (type, title, labels, value) => {
  const data = labels.map((label, index) => ({ label, value: value(index) }));
  return ['visualize_data', { type, title, data }];
};

looks(() => browser, {
  text: prompt('text', 'What should the new service be called?'),
  select: [...prompt('select', 'Where to?', ['Seoul', 'Frankfurt']), (page) => page.getByText('Seoul').click()],
  multiselect: prompt('multiselect', `Which of these?\n${hostile[0]}`, ['One', ...hostile]),
  wait: [...wait('Log in to the bank.', 'Download the statements'), (page) => page.getByRole('button').click()],
  'wait-hostile': wait(hostile.join(' '), hostile.join('\n')),
  bar: [...chart('bar', 'Visitors', week, (day) => 1200 + 731 * day), (page) => page.getByText('Values').click()],
  'bar-korean': chart('bar', '도시 인구', cities, (rank) => Math.round(9_400_000 / (rank + 1))),
  'bar-hostile': chart('bar', short(hostile.join(' ')), hostile.map(short), (index) => index - 2),
  line: chart('line', 'Temperature', hours, (hour) => 14 + 8 * Math.sin(hour / 4)),
  'line-one': chart('line', undefined, ['Only'], () => 42),
});
