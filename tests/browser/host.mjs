// A host of MCP pages, as far as a page can tell: it calls tools, shows the HTML that comes back in a sandboxed frame
// and records the calls that the page asks for. It also notices what no page may do: ask the network for anything, write
// to the console, open a dialog or break its own content policy.
//
//   MOONGATE_ENDPOINT     the /mcp of a gateway that lets anonymous callers read and write
//   MOONGATE_CHROMIUM     the browser
//   MOONGATE_SCREENSHOTS  where pictures of the pages are put

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';

const { MOONGATE_ENDPOINT, MOONGATE_CHROMIUM, MOONGATE_SCREENSHOTS } = process.env;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// A name that is never looked up: the one address that is answered, and that by `Host.open`.
const ADDRESS = 'http://host.invalid/';
const PAGE = `<!doctype html><html lang="en"><meta name="color-scheme" content="light dark"><title>Host</title>
<style>body{margin:0}iframe{display:block;border:0;width:100%;height:100vh}</style><body><script>
const posted = [];
addEventListener('message', ({ data, source }) => {
  if (source === document.querySelector('iframe').contentWindow) posted.push(data);
});
</script></body></html>`;

const SCHEMES = ['light', 'dark'];
// The narrowest telephone that is still sold, and a window beside an editor.
const WIDTHS = [360, 900];

// What people and programs put into texts, each of which must arrive unchanged and do nothing.
export const HOSTILE = {
  markup: '</title></script><script>parent.postMessage("ran", "*")</script><img src=x onerror=console.error(1)>',
  attribute: `" onfocus="console.error(1)" autofocus x='y' & &amp; &lt;b&gt; \`\${1}\``,
  unbroken: 'x'.repeat(400),
  korean: '가나다라마바사아자차카타파하'.repeat(20),
  emoji: '👩‍👩‍👧‍👦🏳️‍🌈🇰🇷'.repeat(20),
  backwards: '\u202Egnp.exe مرحبا שלום',
};

// One browser for all the tests of a file.
export const launch = () => chromium.launch({ executablePath: MOONGATE_CHROMIUM, chromiumSandbox: false });

// A session of the gateway.
export class Session {
  #headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  #next = 0;

  static async open() {
    const session = new Session();
    const clientInfo = { name: 'moongate-test-browser', version: '1.0.0' };
    const hello = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
    const answer = await session.#post({ id: 'hello', method: 'initialize', params: hello });
    session.#headers['mcp-session-id'] = answer.headers.get('mcp-session-id');
    session.#headers['mcp-protocol-version'] = (await answer.json()).result.protocolVersion;
    await session.#post({ method: 'notifications/initialized' });
    return session;
  }

  // The result of a tool, which may have `isError`.
  async call(name, params = {}) {
    this.#next += 1;
    const answer = await this.#post({ id: this.#next, method: 'tools/call', params: { name, arguments: params } });
    const { result, error } = await answer.json();
    assert.ok(result, `${name}: ${JSON.stringify(error)}`);
    return result;
  }

  // What a tool that must succeed tells programs, and its page.
  async page(name, params) {
    const result = await this.call(name, params);
    assert.equal(result.isError, false, JSON.stringify(result.content));
    const { mimeType, text } = result.content.find(({ type }) => type === 'resource').resource;
    assert.equal(mimeType, 'text/html');
    return { told: result.structuredContent, html: text };
  }

  async #post(message) {
    const body = JSON.stringify({ jsonrpc: '2.0', ...message });
    const answer = await fetch(MOONGATE_ENDPOINT, { method: 'POST', headers: this.#headers, body });
    assert.ok(answer.ok, `${message.method}: ${answer.status} ${answer.ok || (await answer.text())}`);
    return answer;
  }
}

// A window with one page at a time.
export class Host {
  #window;
  #problems = [];

  static async open(browser, { scheme = 'light', width = 900 } = {}) {
    const host = new Host();
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 760 } });
    await context.route('**', (route) => {
      if (route.request().url() === ADDRESS) return route.fulfill({ contentType: 'text/html', body: PAGE });
      host.#problems.push(`asked for ${route.request().url()}`);
      return route.abort();
    });
    host.#window = await context.newPage();
    host.#window.setDefaultTimeout(15_000);
    host.#window.on('console', (message) => host.#problems.push(`${message.type()}: ${message.text()}`));
    host.#window.on('pageerror', (error) => host.#problems.push(`${error}`));
    host.#window.on('dialog', (dialog) => {
      host.#problems.push(`opened ${dialog.type()}`);
      return dialog.dismiss();
    });
    await host.#window.goto(ADDRESS);
    return host;
  }

  // Shows a page in place of the one before. The frame may run scripts and nothing else, as careful hosts have it: no
  // origin, no forms, no dialogs, no navigation.
  async show(html) {
    await this.#window.evaluate(async (srcdoc) => {
      document.querySelector('iframe')?.remove();
      posted.length = 0;
      const frame = Object.assign(document.createElement('iframe'), { title: 'Page', srcdoc });
      frame.sandbox = 'allow-scripts';
      await new Promise((loaded) => {
        frame.addEventListener('load', loaded);
        document.body.append(frame);
      });
    }, html);
    return this.#window.frameLocator('iframe');
  }

  get keyboard() {
    return this.#window.keyboard;
  }

  // Goes to the next control without a mouse. The focus enters a frame by way of another process: a key sent before it
  // has arrived would be lost.
  async tab() {
    await this.keyboard.press('Tab');
    await this.#window.frameLocator('iframe').locator(':focus').waitFor();
  }

  // The tool call that the page asks for next.
  async asked() {
    const message = await (await this.#window.waitForFunction(() => posted.shift())).jsonValue();
    assert.equal(message.type, 'tool', JSON.stringify(message));
    assert.deepEqual(Object.keys(message), ['type', 'payload']);
    const { toolName, params, ...rest } = message.payload;
    assert.deepEqual(rest, {});
    return { toolName, params };
  }

  // Makes the call that the page asks for next, as a host does, and checks that it is the one that was expected.
  async obey(session, toolName, params) {
    assert.deepEqual(await this.asked(), { toolName, params });
    return session.call(toolName, params);
  }

  // The page has asked for nothing more: messages keep their order, so one of ours would come after them.
  async quiet() {
    await this.inside(() => parent.postMessage({ type: 'end' }, '*'));
    const message = await (await this.#window.waitForFunction(() => posted.shift())).jsonValue();
    assert.deepEqual(message, { type: 'end' });
  }

  // Runs a function in the page; it gets the root element and the argument.
  inside(work, argument) {
    return this.#window.frameLocator('iframe').locator(':root').evaluate(work, argument);
  }

  // Nothing reaches past the sides, and no two labels of a chart touch.
  async fits() {
    const found = await this.inside(() => {
      const width = document.documentElement.clientWidth;
      const place = (element) => element.getBoundingClientRect();
      const past = [...document.querySelectorAll('body *')].filter(
        (element) => place(element).left < -0.5 || place(element).right > width + 0.5,
      );
      const labels = [...document.querySelectorAll('.labels span')].filter((label) => label.checkVisibility());
      const touching = labels.slice(1).filter((label, index) => place(label).left < place(labels[index]).right - 0.5);
      const scrolls = document.documentElement.scrollWidth > width ? [document.documentElement] : [];
      return [...past, ...touching, ...scrolls].map((element) => element.outerHTML.slice(0, 120));
    });
    assert.deepEqual(found, []);
  }

  // Everything has a name, a role and enough contrast.
  async accessible() {
    await this.inside(AXE);
    const found = await this.inside(async () => {
      const { violations } = await axe.run({ resultTypes: ['violations'] });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' ')}`);
    });
    assert.deepEqual(found, []);
  }

  // light or dark, by what is behind the text.
  async scheme() {
    const channels = await this.inside(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
    return Math.max(...channels) < 128 ? 'dark' : 'light';
  }

  // A picture of the whole page, for people to look at.
  async picture(name) {
    const { width, height } = this.#window.viewportSize();
    const whole = await this.inside(() => document.body.offsetHeight);
    await this.#window.setViewportSize({ width, height: Math.min(whole, 4000) });
    // The frame paints on its own: a frame of the old size would be in the picture.
    await this.inside(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted))));
    await this.#window.screenshot({ path: join(MOONGATE_SCREENSHOTS, `${name}.png`) });
    await this.#window.setViewportSize({ width, height });
  }

  // What the pages have done that they must not, since this was last asked.
  problems() {
    return this.#problems.splice(0);
  }

  close() {
    return this.#window.context().close();
  }
}

// Tests of how pages look, in light and dark, on a telephone and in a window. Each page is a tool, its
// arguments and what is done on it first, under the name that its pictures get.
export function looks(browser, pages) {
  for (const scheme of SCHEMES) {
    for (const width of WIDTHS) {
      describe(`${scheme}, ${width} wide`, () => {
        let host;
        let session;
        before(async () => {
          session = await Session.open();
          host = await Host.open(browser(), { scheme, width });
        });
        after(() => host.close());
        for (const [name, [tool, params, use]] of Object.entries(pages)) {
          test(name, async () => {
            const page = await host.show((await session.page(tool, params)).html);
            await host.quiet();
            await use?.(page);
            await host.picture(`${name}-${width}-${scheme}`);
            assert.equal(await host.scheme(), scheme);
            await host.fits();
            // Names and colours are the same at every width.
            if (width === WIDTHS[0]) await host.accessible();
            assert.deepEqual(host.problems(), []);
          });
        }
      });
    }
  }
}
