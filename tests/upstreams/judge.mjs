// Judges what the official conformance suite wrote about a server behind the gateway, by what the same suite wrote
// about a server it met directly.
//
//   node judge.mjs DIRECTORY DIRECT.json [--clean] [--except SCENARIO,…]
//   node judge.mjs --record DIRECTORY >DIRECT.json
//
// Every check that succeeds directly must succeed here, and no failure or warning may be here that is not there. With
// --clean no failure or warning is forgiven: that is for a suite of another era than the server, where DIRECT.json is
// of the suite's own era and says what there is to run. An exception may end in `*`; it is not looked at, but named
// when there is no need for it.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

// From good to bad. The suite also notes what went over the wire, as INFO: that is no check, except where it says so
// of a check that only concerns who answers a list with a stream, which it leaves to the server.
const STATUSES = ['SUCCESS', 'INFO', 'SKIPPED', 'WARNING', 'FAILURE'];
const LEFT_TO_THE_SERVER = ['server-sse-streams-functional'];
const isBad = (status) => status === 'WARNING' || status === 'FAILURE';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { record: { type: 'boolean' }, clean: { type: 'boolean' }, except: { type: 'string', default: '' } },
});
const [directory, directFile] = positionals;
const here = readResults(directory);
if (options.record) console.log(JSON.stringify(statuses(here), null, 2));
else process.exitCode = judge(JSON.parse(readFileSync(directFile, 'utf8'))) ? 0 : 1;

function judge(direct) {
  const problems = [];
  let [passed, noBetterDirectly, excepted] = [0, 0, 0];
  for (const scenario of new Set([...Object.keys(direct), ...Object.keys(here)])) {
    const found = problemsOf(direct[scenario], here[scenario]);
    if (isExcepted(scenario)) {
      excepted += 1;
      if (found.length === 0) console.log(`${scenario} needs no exception`);
      continue;
    }
    problems.push(...found.map((problem) => `${scenario}: ${problem}`));
    if (found.length > 0) continue;
    if (passes(here[scenario])) passed += 1;
    else noBetterDirectly += 1;
  }
  for (const problem of problems) console.error(problem);
  const rest = `${noBetterDirectly} no better directly, ${excepted} excepted, ${problems.length} problems`;
  console.log(`${passed} scenarios passed, ${rest}`);
  return problems.length === 0 && passed > 0;
}

function problemsOf(direct, checks) {
  if (!direct) return ['is not known; record the direct run again'];
  if (!checks) return ['did not run'];
  const problems = [];
  for (const [id, { status, why }] of Object.entries(checks)) {
    const known = !options.clean && direct[id] === status;
    if (isBad(status) && !known) problems.push(`${status} ${id}: ${why}`);
  }
  for (const [id, status] of Object.entries(direct)) {
    const now = checks[id]?.status ?? 'not run';
    if (status === 'SUCCESS' && now !== 'SUCCESS' && now !== 'INFO' && !isBad(now)) problems.push(`${id}: ${now}`);
  }
  if (options.clean && problems.length === 0 && !passes(checks)) problems.push('nothing was checked');
  return problems;
}

// A scenario that found nothing to check has shown nothing.
function passes(checks) {
  const all = Object.values(checks).map(({ status }) => status);
  return all.includes('SUCCESS') && !all.includes('FAILURE');
}

function isExcepted(scenario) {
  const patterns = options.except.split(',').filter((pattern) => pattern !== '');
  return patterns.some((pattern) =>
    pattern.endsWith('*') ? scenario.startsWith(pattern.slice(0, -1)) : scenario === pattern,
  );
}

// The worst status of every check, by scenario and check, with the reason.
function readResults(from) {
  const results = {};
  for (const entry of readdirSync(from).sort()) {
    const scenario = entry.replace(/^server-/, '').replace(/-\d{4}-\d{2}-\d{2}T[\d-]+Z$/, '');
    const checks = (results[scenario] ??= {});
    for (const { id, status, errorMessage, details } of written(join(from, entry, 'checks.json'))) {
      if (status === 'INFO' && !LEFT_TO_THE_SERVER.includes(id)) continue;
      const isWorse = STATUSES.indexOf(status) > STATUSES.indexOf(checks[id]?.status);
      if (isWorse) checks[id] = { status, why: errorMessage ?? JSON.stringify(details) };
    }
  }
  return results;
}

// A scenario that broke off has written nothing.
function written(file) {
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : [];
}

function statuses(results) {
  const only = (checks) => Object.fromEntries(Object.entries(checks).map(([id, { status }]) => [id, status]));
  return Object.fromEntries(Object.entries(results).map(([scenario, checks]) => [scenario, only(checks)]));
}
