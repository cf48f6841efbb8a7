// The official TypeScript SDK 1.x against a gateway: see scenario.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { clientInfo, run } from './scenario.mjs';

await run({
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  stdio: (parameters) => new StdioClientTransport(parameters),
  client: (era) => {
    if (era !== 'legacy') throw new Error('SDK 1.x speaks the versions with a handshake only');
    return new Client(clientInfo);
  },
});
