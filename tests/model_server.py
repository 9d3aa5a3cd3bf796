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
from typing import Any, NamedTuple

Json = dict[str, Any]
Tools = dict[str, Json]
"""The tools on offer, each with its parameters."""

INPUT, CACHED, OUTPUT = 1200, 1000, 34
"""What every answer says it cost, in tokens; a request sent `INPUT` new ones and
`CACHED` old ones."""
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
        self._http = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self})
        )
        self._http.daemon_threads, self._http.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ModelServer:
        threading.Thread(
            target=self._http.serve_forever, args=(0.05,), daemon=True
        ).start()
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
        say = next((say for ending, say in APIS.items() if path.endswith(ending)), None)
        if say is None:  # counting tokens, telemetry
            return self._json(200, {"input_tokens": 1, "totalTokens": 1})
        body = json.loads(raw)
        step = self.model.step(body, raw, path)
        if isinstance(step, Hang):
            self.model.over.wait()
            self.close_connection = True
            return None
        if isinstance(step, Page):
            return self._send(
                step.status, {"Content-Type": "text/html"}, PAGE.format(step.status)
            )
        if isinstance(step, Fail):
            return self._json(step.status, failure(step, say), step.headers)
        stream = bool(body.get("stream")) or path.endswith(":streamGenerateContent")
        answers = say(spoken(step, tools_of(body)), str(body.get("model")), stream)
        headers = step.headers if isinstance(step, Say) else {}
        return (
            self._events(answers, headers)
            if stream
            else self._json(200, answers[0], headers)
        )

    def _events(self, events: list[Json], headers: Mapping[str, str]) -> None:
        lines = [
            f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"
            if "type" in data
            else f"data: {json.dumps(data)}\n\n"
            for data in events
        ]
        self._send(
            200, {"Content-Type": "text/event-stream", **headers}, "".join(lines)
        )

    def _json(
        self, status: int, body: Json, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send(
            status,
            {"Content-Type": "application/json", **(headers or {})},
            json.dumps(body),
        )

    def _send(self, status: int, headers: Mapping[str, str], content: str) -> None:
        data = content.encode()
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)
        except ConnectionError:  # the agent was ended while it asked
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


def tools_of(body: Json) -> Tools:
    offered: Tools = {}
    for entry in body.get("tools") or []:
        for tool in (
            entry.get("functionDeclarations")
            or entry.get("tools")
            or [entry.get("function") or entry]
        ):
            schema = (
                tool.get("input_schema")
                or tool.get("parametersJsonSchema")
                or tool.get("parameters")
                or {}
            )
            offered[str(tool.get("name")).lower()] = {
                **tool,
                "parameters": schema.get("properties", {}),
            }
    return offered


def results_in(body: Json) -> int:
    entries = body.get("messages") or body.get("contents") or body.get("input") or []
    parts = [
        part
        for entry in entries
        for part in entry.get("content") or entry.get("parts") or []
    ]
    return sum(
        entry.get("role") == "tool"
        or entry.get("type") == "tool_result"
        or "functionResponse" in entry
        or str(entry.get("type")).endswith("_call_output")
        for entry in [*entries, *parts]
        if isinstance(entry, dict)
    )


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
            key = next(
                key
                for key in ("file_path", "filePath", "path")
                if key in tool["parameters"]
            )
            return Answer(
                "", tool["name"], {key: str(step.path), "content": step.content}
            )
        step = Run(f"cat > '{step.path}' <<'END'\n{step.content}END")
    shell = next(tools[name] for name in SHELLS if name in tools)
    arguments: Json = {
        "cmd" if "cmd" in shell["parameters"] else "command": step.command
    }
    if "description" in shell["parameters"]:
        arguments["description"] = "a scripted command"
    if step.background:
        arguments["run_in_background"] = True
    return Answer("", shell["name"], arguments)


# ---------------------------------------------------------------- what each API answers


def failure(fail: Fail, say: object) -> Json:
    kind, status = ERRORS.get(fail.status, ("api_error", "UNAVAILABLE"))
    error: Json = {"type": kind, "message": f"scripted {fail.status}", **fail.error}
    if say is gemini:
        error |= {"code": fail.status, "status": status}
        if seconds := fail.headers.get("retry-after"):
            retry = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": retry, "retryDelay": f"{seconds}s"}]
    return {"type": "error", "error": error}


def _id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def anthropic(said: Answer, model: str, stream: bool) -> list[Json]:
    block: Json = {"type": "text", "text": said.text}
    empty: Json = {**block, "text": ""}
    delta = {"type": "text_delta", "text": said.text}
    if said.tool:
        block = {
            "type": "tool_use",
            "id": _id("toolu_"),
            "name": said.tool,
            "input": said.arguments,
        }
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
    ended = {
        "stop_reason": "tool_use" if said.tool else "end_turn",
        "stop_sequence": None,
    }
    usage = {
        "input_tokens": INPUT,
        "cache_read_input_tokens": CACHED,
        "output_tokens": OUTPUT,
    }
    message = {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "usage": usage,
    }
    if not stream:
        return [{**message, "content": [block], **ended}]
    return [
        {
            "type": "message_start",
            "message": {**message, "content": [], "stop_reason": None},
        },
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": OUTPUT}},
        {"type": "message_stop"},
    ]


def chat(said: Answer, model: str, stream: bool) -> list[Json]:
    message: Json = {"role": "assistant", "content": said.text}
    if said.tool:
        call = {"name": said.tool, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [
            {"index": 0, "id": _id("call_"), "type": "function", "function": call}
        ]
    reason = "tool_calls" if said.tool else "stop"
    usage: Json = {"prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT}
    usage |= {
        "total_tokens": INPUT + CACHED + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
    }
    base = {
        "id": _id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
    }
    if not stream:
        return [
            {
                **base,
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": usage,
            }
        ]
    base["object"] = "chat.completion.chunk"
    return [
        {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {
            **base,
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
            "usage": usage,
        },
    ]


def responses(said: Answer, model: str, stream: bool) -> list[Json]:
    words = {"type": "output_text", "text": said.text, "annotations": []}
    item: Json = {
        "type": "message",
        "id": _id("msg_"),
        "role": "assistant",
        "content": [words],
    }
    if said.tool:
        item = {
            "type": "function_call",
            "id": _id("fc_"),
            "call_id": _id("call_"),
            "name": said.tool,
        }
        item["arguments"] = json.dumps(said.arguments)
    usage: Json = {
        "input_tokens": INPUT + CACHED,
        "input_tokens_details": {"cached_tokens": CACHED},
    }
    usage |= {"output_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    response = {
        "id": _id("resp_"),
        "object": "response",
        "model": model,
        "output": [item],
        "usage": usage,
    }
    if not stream:
        return [response]
    return [
        {
            "type": "response.created",
            "response": {**response, "output": [], "usage": None},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


def gemini(said: Answer, model: str, stream: bool) -> list[Json]:
    part = (
        {"functionCall": {"name": said.tool, "args": said.arguments}}
        if said.tool
        else {"text": said.text}
    )
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED}
    usage |= {
        "candidatesTokenCount": OUTPUT,
        "totalTokenCount": INPUT + CACHED + OUTPUT,
    }
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate], "responseId": _id(""), "usageMetadata": usage}]


APIS = {
    "/messages": anthropic,
    "/chat/completions": chat,
    "/responses": responses,
    ":generateContent": gemini,
    ":streamGenerateContent": gemini,
}
