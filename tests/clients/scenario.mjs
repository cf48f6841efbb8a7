// What every TypeScript client does: connect, list the tools, create a goal, list the goals, print one line of JSON.
//
//   node typescript-N.mjs legacy|modern http URL TOKEN
//   node typescript-N.mjs legacy|modern stdio COMMAND ARGUMENT…
//
// With MOONGATE_CALLS, an array of {name, arguments}, it makes those calls instead and prints what each returned.

export const clientInfo = { name: 'moongate-test', version: '1.0.0' };

// `sdk` has the constructors: http(url, options), stdio(parameters), client(era).
export async function run(sdk) {
  const [era, kind, ...target] = process.argv.slice(2);
  const client = sdk.client(era);
  await client.connect(transport(sdk, kind, target));
  const { tools } = await client.listTools();
  if (process.env.MOONGATE_CALLS) {
    const results = [];
    for (const call of JSON.parse(process.env.MOONGATE_CALLS)) results.push(result(await client.callTool(call)));
    await client.close();
    process.stdout.write(`${JSON.stringify({ tools: tools.map(shown), results })}\n`);
    return;
  }
  const created = await client.callTool({ name: 'create_goal', arguments: { goal: 'Plant a tree' } });
  const goals = await client.callTool({ name: 'list_goals', arguments: {} });
  await client.close();
  process.stdout.write(`${JSON.stringify({ tools: tools.map(shown), created: result(created), goals: result(goals) })}\n`);
}

function transport(sdk, kind, target) {
  if (kind === 'stdio') {
    const [command, ...args] = target;
    return sdk.stdio({ command, args, env: process.env });
  }
  const [url, token] = target;
  return sdk.http(new URL(url), { requestInit: { headers: { authorization: `Bearer ${token}` } } });
}

const shown = ({ name, description, inputSchema }) => ({ name, description, inputSchema });

const result = ({ isError = false, content, structuredContent = null }) => ({ isError, content, structuredContent });
