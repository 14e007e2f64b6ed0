"""Serves an OpenAI-compatible endpoint that scores candidates by rules on their text, without a language model.

It replaces the LLM judge of the Stanford report where none can be reached. Its scores are a rough opinion without
execution, which suffices to measure the reward's judge term. `with served() as url: …`
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def opinion(reference: str, candidate: str) -> dict[str, float | str]:
    """Returns scores of a candidate's text in [0, 1], by the rubric of `rewards_judge`."""
    try:
        tree = ast.parse(candidate)
        parses = 1.0
    except SyntaxError:
        tree, parses = ast.Module([], []), 0.0
    named = any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    kernels = "".join(re.findall(r'r?"""(.*?)"""', candidate, re.DOTALL))
    balanced = all(kernels.count(a) == kernels.count(b) for a, b in ("{}", "()", "[]"))
    launches = bool(re.search(r"\.\w+\[|<<<", candidate))
    compilability = (parses + named + (balanced and "__global__" in kernels) + launches) / 4
    words = set(re.findall(r"[a-z_]{3,}", reference.lower()))
    shared = len(words & set(re.findall(r"[a-z_]{3,}", candidate.lower()))) / max(len(words), 1)
    guarded = bool(re.search(r"if\s*\(\s*\w+\s*(<|>=)", kernels))
    correctness = compilability * (0.6 * min(1.0, 1.5 * shared) + 0.4 * guarded)
    speed = compilability * (0.5 + 0.25 * ("__shared__" in kernels) + 0.25 * ("float4" in kernels))
    scores = {"compilability": compilability, "correctness": correctness, "speed": speed}
    return {"reasoning": "by rules on the text", **{name: round(float(x), 4) for name, x in scores.items()}}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        asked = body["messages"][-1]["content"]
        blocks = re.findall(r"```(?:python)?\n(.*?)\n```", asked, re.DOTALL)
        found = opinion(blocks[0], blocks[1]) if len(blocks) >= 2 else {"reasoning": "no candidate"}
        answer = {
            "id": "rules",
            "object": "chat.completion",
            "model": "rules",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(found)}}
            ],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@contextlib.contextmanager
def served(port: int = 0) -> Iterator[str]:
    """Serves the endpoint at a port of this machine (0: a free one); yields its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
