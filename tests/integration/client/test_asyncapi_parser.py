"""AsyncAPI's own parser finds nothing wrong with the document."""

import json

from node_support import PARSER, node, package, run

from scheduler.resources import folder
from tools.asyncapi import FILE

PARSE = """
const { Parser } = require('@asyncapi/parser');
const { readFileSync } = require('fs');
new Parser().parse(readFileSync(process.argv[2], 'utf8')).then(({ document, diagnostics }) => {
  const found = diagnostics.map(({ severity, path, message }) => ({ severity, path: path.join('/'), message }));
  console.log(JSON.stringify({ channels: document ? document.channels().length : 0, found }));
});
"""
WARNING = 1  # 0 is an error; beyond are hints, such as that a newer AsyncAPI exists


def test_the_official_parser_accepts_the_document():
    where = package(*PARSER)
    (where / "parse.js").write_text(PARSE)
    result = json.loads(run(node(), str(where / "parse.js"), str(folder("schemas") / FILE)))
    assert [each for each in result["found"] if each["severity"] <= WARNING] == []
    assert result["channels"] > 0
