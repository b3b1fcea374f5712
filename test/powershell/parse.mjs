// Parses the golden files of internal/userdata with tree-sitter's grammar of PowerShell. If a file can't be parsed, or
// if the parser accepts a broken script, it exits with 1.
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Language, Parser } from 'web-tree-sitter';

const folder = new URL('../../internal/userdata/testdata/', import.meta.url);
const grammar = createRequire(import.meta.url).resolve('tree-sitter-powershell/tree-sitter-powershell.wasm');

await Parser.init();
const parser = new Parser();
parser.setLanguage(await Language.load(grammar));

// errors returns the positions where a script can't be parsed.
function errors(script) {
  const found = [];
  const walk = (node) => {
    if (node.isError || node.isMissing) found.push(`line ${node.startPosition.row + 1}: ${JSON.stringify(node.text.slice(0, 60))}`);
    for (let i = 0; i < node.childCount; i++) walk(node.child(i));
  };
  walk(parser.parse(script).rootNode);
  return found;
}

// unwrap removes the tags that a cloud's agent removes. Azure's file has no tags.
const unwrap = (text) => text.replace(/^<powershell>\n/, '').replace(/<\/powershell>\n<persist>true<\/persist>\n$/, '');

let failed = false;
for (const file of readdirSync(folder).filter((name) => name.endsWith('.ps1'))) {
  const script = unwrap(readFileSync(new URL(file, folder), 'utf8'));
  const found = errors(script);
  found.forEach((error) => console.error(`${file}: ${error}`));
  // Each change breaks the script, so the parser must report an error.
  const broken = [script.replace('    try {', '    try'), script.replace('catch {', 'catch'), script.replace('(Test-Path', '((Test-Path'), script + '}', script + "'"];
  const missed = broken.filter((text) => errors(text).length === 0);
  missed.forEach((text) => console.error(`${file}: a broken script was taken for a good one (number ${broken.indexOf(text) + 1})`));
  failed ||= found.length > 0 || missed.length > 0;
  console.log(`${file}: ${found.length === 0 ? 'parsed' : 'not PowerShell'}`);
}
process.exit(failed ? 1 : 0);
