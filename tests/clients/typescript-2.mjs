// The official TypeScript SDK 2.x against a gateway: see scenario.mjs.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { clientInfo, run } from './scenario.mjs';

await run({
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  stdio: (parameters) => new StdioClientTransport(parameters),
  client: (era) =>
    new Client(clientInfo, {
      // Pinned, so that a gateway that cannot speak the version fails the test instead of falling back.
      versionNegotiation: { mode: era === 'modern' ? { pin: '2026-07-28' } : 'legacy' },
    }),
});
