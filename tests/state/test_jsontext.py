"""A JSON text is rewritten where its value changes, and no other byte."""

from __future__ import annotations

import json
from typing import Any

from _ralph.state import jsontext
from tests.conftest import cases


def written(cell: str) -> str:
    for said, meant in ((r"\n", "\n"), (r"\r", "\r"), (r"\t", "\t"), ("BOM", "\ufeff")):
        cell = cell.replace(said, meant)
    return cell


def value(source: str) -> Any:
    return json.loads(source.removeprefix("\ufeff"))


# A text, a new value, and the text with it. `\n`, `\r` and `\t` are those.
@cases(r"""
source -> new -> wanted
{"a": 1, "b": 2} -> {"a": true, "b": 2} -> {"a": true, "b": 2}
{"a" : {"b": [1]} , "b": 2} -> {"a": null, "b": 2} -> {"a" : null , "b": 2}
{"a": 1} -> {"a": 1, "n": "ü"} -> {"a": 1, "n": "ü"}
{\n  "a": 1,\n  "b": 2\n} -> {"a": 1, "b": 2, "n": 3, "m": 4} -> {\n  "a": 1,\n  "b": 2,\n  "n": 3,\n  "m": 4\n}
{\r\n\t"a": 1\r\n} -> {"a": 1, "n": 3} -> {\r\n\t"a": 1,\r\n\t"n": 3\r\n}
{"a": "x", "a b": "\"a\": 1"} -> {"a": "x", "a b": "y"} -> {"a": "x", "a b": "y"}
{ "a":1, "b": 2} -> {"b": 2} -> {"b": 2}
{"a": {}} -> {"a": {"b": 1}} -> {"a": {"b": 1}}
{"a": {"b": 1}} -> {"a": {"c": 1}} -> {"a": {"c": 1}}
{"a": [1 ,2]} -> {"a": []} -> {"a": []}
BOM{"b": [ {"x": "}"}, {"x": 2} ]}\n -> {"b": [{"x": "}"}, {"x": 3}]} -> BOM{"b": [ {"x": "}"}, {"x": 3} ]}\n
[{"a": 1}] -> [{"a": 1}, {"n": [1]}] -> [{"a": 1}, {"n": [1]}]
[{"a": 1}, {"a": 2}] -> [{"n": [1]}] -> [{"n": [1]}]
[\n  {\n    "a": 1\n  }\n] -> [{"a": 1}, {"n": [1]}] -> [\n  {\n    "a": 1\n  },\n  {\n    "n": [1]\n  }\n]
[\r\n{"a": 1}\r\n] -> [{"a": 1}, {"n": [1]}] -> [\r\n{"a": 1},\r\n{"n": [1]}\r\n]
""")
def test_no_byte_changes_but_what_says_the_new_value(
    source: str, new: str, wanted: str
) -> None:
    source, said, wanted = written(source), json.loads(new), written(wanted)
    assert jsontext.rewrite(source, value(source), said) == wanted
    assert value(wanted) == said
    assert jsontext.rewrite(wanted, value(wanted), said) == wanted
