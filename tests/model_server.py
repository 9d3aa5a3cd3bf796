"""A scripted model on loopback: real agent CLIs ask it what to do, each in the API that
it speaks.

    with ModelServer([Write(path, "hello\\n"), Say("done")]) as model:
        ...  # an agent that talks to model.url

The step that is played is the number of tool results in the conversation, so a request
that is tried again gets the same answer, and a fresh session starts at the first step.
The last repeats. `responses` are the steps of an agent that speaks OpenAI's newer API
beside another one that does not.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

Json = dict[str, Any]
Tools = dict[str, Json]
"""The tools on offer, each with its parameters."""

INPUT, CACHED, OUTPUT = 1200, 1000, 34
"""What every answer says it cost, in tokens; a request sent `INPUT` new ones and
`CACHED` old ones."""
COUNTS = {"new": INPUT, "cached": CACHED, "sent": INPUT + CACHED, "output": OUTPUT}
COUNTS["total"] = COUNTS["sent"] + OUTPUT
PAGE = "<html><head><title>{} from a proxy</title></head><body><h1>Sign in here</h1></body></html>"
WRITERS = ("write", "write_file")
SHELLS = ("bash", "run_shell_command", "exec_command", "shell_command")
ERRORS = {
    401: ("authentication_error", "UNAUTHENTICATED"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED"),
}


class Say(NamedTuple):
    """Words, and the end of the turn."""

    text: str
    headers: Mapping[str, str] = {}


class Write(NamedTuple):
    """A file, through the agent's own tool for it, else through its shell."""

    path: Path
    content: str


class Run(NamedTuple):
    """A command, through the agent's shell tool; with `background`, as a task of its
    own (Claude Code)."""

    command: str
    background: bool = False


class Fail(NamedTuple):
    """An HTTP error; `error` goes into the body's error object."""

    status: int
    headers: Mapping[str, str] = {}
    error: Mapping[str, Any] = {}


class Page(NamedTuple):
    """A page of HTML in place of an answer, as proxies and wrong addresses give it."""

    status: int


class Hang(NamedTuple):
    """No answer at all, the connection stays open."""


Step = Say | Write | Run | Fail | Page | Hang


class Answer(NamedTuple):
    """Either words, or one call of a tool."""

    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = {}


class ModelServer:
    """Listens on a free port of loopback for as long as the `with` block lasts."""

    def __init__(self, steps: Sequence[Step], responses: Sequence[Step] = ()) -> None:
        self.steps = steps
        self.responses = responses or steps
        self.asked: list[str] = []
        self.over = threading.Event()
        handler = type("Handler", (_Handler,), {"model": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ModelServer:
        serve = self._http.serve_forever
        threading.Thread(target=serve, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def step(self, body: Json, raw: bytes, path: str) -> Step:
        """What the script says to this request, whichever API it came through."""
        self.asked.append(path)
        steps = self.responses if path.endswith("/responses") else self.steps
        if tools_of(body) or b"SEARCH/REPLACE" in raw:
            return steps[min(results_in(body), len(steps) - 1)]
        # Titles and probes offer no tools, and are none of the script's business.
        return steps[0] if isinstance(steps[0], Fail | Page | Hang) else Say("ok")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def do_GET(self) -> None:
        self._json(404, {"error": {"message": "there is only a scripted model here"}})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        api = next((api for ending, api in APIS.items() if path.endswith(ending)), None)
        if api is None:  # counting tokens, telemetry
            return self._json(200, {"input_tokens": 1, "totalTokens": 1})
        body = json.loads(raw)
        step = self.model.step(body, raw, path)
        if isinstance(step, Hang):
            self.model.over.wait()
            self.close_connection = True
            return None
        if isinstance(step, Page):
            page = PAGE.format(step.status)
            return self._send(step.status, "text/html", page)
        if isinstance(step, Fail):
            return self._json(step.status, failure(step, api), step.headers)
        stream = bool(body.get("stream")) or path.endswith(":streamGenerateContent")
        said = spoken(step, tools_of(body))
        sent = answers(api, said, str(body.get("model")), stream)
        headers = step.headers if isinstance(step, Say) else {}
        if stream:
            return self._events(sent, headers)
        return self._json(200, sent[0], headers)

    def _events(self, events: list[Json], headers: Mapping[str, str]) -> None:
        content = ""
        for data in events:
            if "type" in data:
                content += f"event: {data['type']}\n"
            content += f"data: {json.dumps(data)}\n\n"
        self._send(200, "text/event-stream", content, headers)

    def _json(self, status: int, body: Json, headers: Mapping[str, str] = {}) -> None:
        self._send(status, "application/json", json.dumps(body), headers)

    def _send(
        self, status: int, kind: str, content: str, headers: Mapping[str, str] = {}
    ) -> None:
        data = content.encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
        except ConnectionError:  # the agent was ended while it asked
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


def tools_of(body: Json) -> Tools:
    offered: Tools = {}
    for entry in body.get("tools") or []:
        several = entry.get("functionDeclarations") or entry.get("tools")
        for tool in several or [entry.get("function") or entry]:
            schema = tool.get("input_schema") or tool.get("parametersJsonSchema")
            schema = schema or tool.get("parameters") or {}
            parameters = schema.get("properties", {})
            offered[str(tool.get("name")).lower()] = {**tool, "parameters": parameters}
    return offered


def results_in(body: Json) -> int:
    found = 0
    entries = body.get("messages") or body.get("contents") or body.get("input") or []
    for entry in entries:
        parts = entry.get("content") or entry.get("parts") or []
        found += sum(map(_is_result, [entry, *parts]))
    return found


def _is_result(part: Any) -> bool:
    """Whether a part of a conversation is what a tool answered, in any API."""
    if not isinstance(part, dict):
        return False
    if part.get("role") == "tool" or "functionResponse" in part:
        return True
    kind = str(part.get("type"))
    return kind == "tool_result" or kind.endswith("_call_output")


def spoken(step: Say | Write | Run, tools: Tools) -> Answer:
    """The step in the words of the agent that asked: its own tools and their
    parameters."""
    if isinstance(step, Say):
        return Answer(step.text)
    if not tools:  # Aider has none: it reads edits from the text, and runs no command
        if isinstance(step, Run):
            return Answer(f"```bash\n{step.command}\n```\n")
        name = step.path.name
        return Answer(
            f"{name}\n```\n<<<<<<< SEARCH\n=======\n{step.content}>>>>>>> REPLACE\n```\n"
        )
    if isinstance(step, Write):
        for tool in (tools[name] for name in WRITERS if name in tools):
            keys = ("file_path", "filePath", "path")
            key = next(key for key in keys if key in tool["parameters"])
            written = {key: str(step.path), "content": step.content}
            return Answer("", tool["name"], written)
        step = Run(f"cat > '{step.path}' <<'END'\n{step.content}END")
    shell = next(tools[name] for name in SHELLS if name in tools)
    name = "cmd" if "cmd" in shell["parameters"] else "command"
    arguments: Json = {name: step.command}
    if "description" in shell["parameters"]:
        arguments["description"] = "a scripted command"
    if step.background:
        arguments["run_in_background"] = True
    return Answer("", shell["name"], arguments)


# ---------------------------------------------------------------- what each API answers


class Api(NamedTuple):
    """What it answers, as JSON: whole, as a stream of events, and the parts of both for
    words and for a call of a tool. `$name` stands for a value."""

    whole: str
    stream: str
    words: str
    call: str


_MESSAGE = """"id": "msg_$id", "type": "message", "role": "assistant", "model": $model,
    "usage": {"input_tokens": $new, "cache_read_input_tokens": $cached, "output_tokens": $output}"""
ANTHROPIC = Api(
    f'[{{{_MESSAGE}, "content": [$block], "stop_reason": $reason, "stop_sequence": null}}]',
    f"""[
    {{"type": "message_start", "message": {{{_MESSAGE}, "content": [], "stop_reason": null}}}},
    {{"type": "content_block_start", "index": 0, "content_block": $empty}},
    {{"type": "content_block_delta", "index": 0, "delta": $delta}},
    {{"type": "content_block_stop", "index": 0}},
    {{"type": "message_delta", "delta": {{"stop_reason": $reason, "stop_sequence": null}}, "usage": {{"output_tokens": $output}}}},
    {{"type": "message_stop"}}]""",
    """{
    "block": {"type": "text", "text": $text}, "empty": {"type": "text", "text": ""},
    "delta": {"type": "text_delta", "text": $text}, "reason": "end_turn"}""",
    """{
    "block": {"type": "tool_use", "id": "toolu_$id", "name": $tool, "input": $arguments},
    "empty": {"type": "tool_use", "id": "toolu_$id", "name": $tool, "input": {}},
    "delta": {"type": "input_json_delta", "partial_json": $written}, "reason": "tool_use"}""",
)

_BASE = '"id": "chatcmpl-$id", "created": $now, "model": $model'
_USAGE = """"usage": {"prompt_tokens": $sent, "completion_tokens": $output, "total_tokens": $total,
    "prompt_tokens_details": {"cached_tokens": $cached}}"""
CHAT = Api(
    f"""[{{{_BASE}, "object": "chat.completion", {_USAGE},
    "choices": [{{"index": 0, "message": $message, "finish_reason": $reason}}]}}]""",
    f"""[
    {{{_BASE}, "object": "chat.completion.chunk", "choices": [{{"index": 0, "delta": $message, "finish_reason": null}}]}},
    {{{_BASE}, "object": "chat.completion.chunk", {_USAGE}, "choices": [{{"index": 0, "delta": {{}}, "finish_reason": $reason}}]}}]""",
    '{"message": {"role": "assistant", "content": $text}, "reason": "stop"}',
    """{"message": {"role": "assistant", "content": $text, "tool_calls": [
    {"index": 0, "id": "call_$id", "type": "function", "function": {"name": $tool, "arguments": $written}}]},
    "reason": "tool_calls"}""",
)

_RESPONSE = '"id": "resp_$id", "object": "response", "model": $model'
_DONE = f"""{{{_RESPONSE}, "output": [$item],
    "usage": {{"input_tokens": $sent, "input_tokens_details": {{"cached_tokens": $cached}}, "output_tokens": $output, "total_tokens": $total}}}}"""
RESPONSES = Api(
    f"[{_DONE}]",
    f"""[
    {{"type": "response.created", "response": {{{_RESPONSE}, "output": [], "usage": null}}}},
    {{"type": "response.output_item.added", "output_index": 0, "item": $item}},
    {{"type": "response.output_item.done", "output_index": 0, "item": $item}},
    {{"type": "response.completed", "response": {_DONE}}}]""",
    """{"item": {"type": "message", "id": "msg_$id", "role": "assistant",
    "content": [{"type": "output_text", "text": $text, "annotations": []}]}}""",
    """{"item": {"type": "function_call", "id": "fc_$id", "call_id": "call_$id",
    "name": $tool, "arguments": $written}}""",
)

_GEMINI = """[{"responseId": "$id",
    "candidates": [{"content": {"role": "model", "parts": [$part]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": $sent, "cachedContentTokenCount": $cached, "candidatesTokenCount": $output, "totalTokenCount": $total}}]"""
GEMINI = Api(
    _GEMINI,
    _GEMINI,
    '{"part": {"text": $text}}',
    '{"part": {"functionCall": {"name": $tool, "args": $arguments}}}',
)
APIS = {
    "/messages": ANTHROPIC,
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    ":generateContent": GEMINI,
    ":streamGenerateContent": GEMINI,
}


def filled(template: str, values: Json) -> Any:
    """JSON with its values in it, and an id that is its own."""
    texts = {name: json.dumps(value) for name, value in values.items()}
    texts["id"] = uuid.uuid4().hex[:24]
    return json.loads(Template(template).substitute(texts))


def answers(api: Api, said: Answer, model: str, stream: bool) -> list[Json]:
    """What is sent, an object an event; all at once if it is no stream."""
    values: Json = {**COUNTS, **said._asdict(), "model": model}
    values["now"] = int(time.time())
    values["written"] = json.dumps(said.arguments)
    values |= filled(api.call if said.tool else api.words, values)
    sent: list[Json] = filled(api.stream if stream else api.whole, values)
    return sent


def failure(fail: Fail, api: Api) -> Json:
    kind, status = ERRORS.get(fail.status, ("api_error", "UNAVAILABLE"))
    error: Json = {"type": kind, "message": f"scripted {fail.status}", **fail.error}
    if api is GEMINI:
        error |= {"code": fail.status, "status": status}
        if seconds := fail.headers.get("retry-after"):
            retry = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": retry, "retryDelay": f"{seconds}s"}]
    return {"type": "error", "error": error}
