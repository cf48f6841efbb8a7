// Judges what the official conformance suite wrote: every scenario passes, none is missing, and a warning is a failure.
//
//   node conformance.mjs DIRECTORY COUNT
//
// COUNT is how many scenarios the suite must have run, so that one that silently did not run is noticed too.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

// Extensions that the gateway does not advertise; the suite runs them unscored.
const NOT_OFFERED = [/^tasks-/, /^sep-2640-/];

const [directory, count] = process.argv.slice(2);
const problems = [];
let passed = 0;

for (const entry of readdirSync(directory).sort()) {
  const scenario = entry.replace(/^server-/, '').replace(/-\d{4}-\d{2}-\d{2}T[\d-]+Z$/, '');
  if (NOT_OFFERED.some((pattern) => pattern.test(scenario))) continue;
  const checks = JSON.parse(readFileSync(join(directory, entry, 'checks.json'), 'utf8'));
  const bad = checks.filter(({ status }) => status === 'FAILURE' || status === 'WARNING');
  for (const { status, id, errorMessage, details } of bad) {
    problems.push(`${scenario}: ${status} ${id}: ${errorMessage ?? JSON.stringify(details)}`);
  }
  if (bad.length > 0) continue;
  // A scenario that found nothing to check has shown nothing.
  if (checks.some(({ status }) => status === 'SUCCESS')) passed += 1;
  else problems.push(`${scenario}: nothing was checked`);
}

if (passed !== Number(count)) problems.push(`${passed} of ${count} scenarios passed`);
for (const problem of problems) console.error(problem);
console.log(`${passed} scenarios passed`);
process.exit(problems.length === 0 ? 0 : 1);
