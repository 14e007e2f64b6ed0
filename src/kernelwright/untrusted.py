"""Neutralises text that a candidate or a model wrote, before it is shown: to a model, on a terminal, on a page.

Such text may hold control sequences of a terminal, characters that reorder or hide others, the marks by which a chat
template separates roles, fences that end the block around it, and tracebacks through our own files. Each function reads
a text in time proportional to its length.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, ESC among them; newline and tab stay
    r"\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Characters that are not seen as themselves: controls, bidirectional marks and overrides, zero-width characters,
variation selectors, tags, and surrogates."""
_MARKS = re.compile(
    r"<(?=[|\uff5c])"  # <|im_start|>, <|eot_id|>, <｜User｜>
    r"|(?<=[|\uff5c])>"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])"
    r"|<(?=</?SYS>>)"
    r"|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|tool|tool_call|tool_response|function_calls"
    r"|function_results|system|user|assistant|human)>)",
    re.IGNORECASE,
)
"""Where a mark of a chat template is cut by a space."""
_THOUGHT = re.compile(r"<(?=/?think(?:ing)?>)", re.IGNORECASE)
_TURN = re.compile(
    r"^(?=(?:Human|Assistant|System|User|#{1,6} ?(?:Instruction|Response|Input|System|User|Assistant|Human)) ?:)", re.M
)
"""Where a line begins a turn in templates that have no marks; a space before it makes it text."""
_FENCE = re.compile(r"`{3,}|~{3,}")
_FRAME = re.compile(r'([ \t|+-]*)File "([^"\n]*)", line \d+.*')
_OWN_FILE = re.compile(r"(?:.*[/\\])?candidate\.py|<string>|<stdin>", re.DOTALL)
_OUR_FOLDER = re.compile(r"(?<![\w.@+~/-])(?:/[\w.@+~-]+)*?/kernelwright(?:-\w+)?/(?:[\w.@+~-]+/)*")


def visible(text: str) -> str:
    """Returns the text with every control, reordering and invisible character replaced. For terminals and pages."""
    return _HIDDEN.sub(REPLACEMENT, text)


def without_marks(text: str) -> str:
    """Returns the text with the marks of chat templates cut by a space, so that no tokenizer takes them for its own.

    The marks around reasoning stay: an earlier answer of a model has them by right.
    """
    return _TURN.sub(" ", _MARKS.sub(lambda mark: f"{mark[0]} " if mark[0] != ">" else " >", text))


def for_model(text: str) -> str:
    """Returns the text as it may stand inside a fence of a message to a model."""
    cut = _FENCE.sub(lambda fence: " ".join(fence[0]), visible(text))
    return _THOUGHT.sub("< ", without_marks(cut))


def line(text: str) -> str:
    """Returns a text as one line of a message to a model, so that it cannot look like further lines of ours."""
    return for_model(" ".join(without_our_folders(text).split()))


def fenced(text: str, label: str = "text") -> str:
    """Returns the text in a fence that it cannot end."""
    return f"```{label}\n{for_model(text)}\n```"


def own_frames(text: str) -> str:
    """Returns a log in which tracebacks show the candidate's own frames alone, under the name `candidate.py`."""
    kept: list[str] = []
    hidden: int | None = None
    """The indentation of the frame that is being left out."""
    for one in text.split("\n"):
        indentation = len(one) - len(one.lstrip(" \t|+-"))
        if hidden is not None and one.strip() and indentation > hidden:
            continue
        frame = _FRAME.fullmatch(one)
        hidden = None
        if frame is None:
            kept.append(one)
        elif _OWN_FILE.fullmatch(frame[2]):
            name = re.split(r"[/\\]", frame[2])[-1]
            kept.append(one.replace(frame[2], name, 1))
        else:
            hidden = indentation
    return without_our_folders("\n".join(kept))


def without_our_folders(text: str) -> str:
    """Returns the text with the folders removed from paths of this package and of a judgement's scratch files."""
    return _OUR_FOLDER.sub("", text)
