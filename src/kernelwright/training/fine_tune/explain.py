"""A heat map of one training sample: the model's confidence, the loss's token weights and the hardest window.

One self-contained HTML page without external scripts: the answer's tokens coloured by confidence, token weight or CUDA
mask, the hardest window underlined, and each token's numbers in its tooltip. All text from the data is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError
from kernelwright.runs.folders import make
from kernelwright.training.fine_tune import run
from kernelwright.training.fine_tune.samples import CUDA, TARGET, THOUGHT, Encoder, encoder_of
from kernelwright.training.fine_tune.settings import SftSettings
from kernelwright.training.fine_tune.texts import BadRow, Conversation, RowReport, conversations
from kernelwright.training.losses import load_loss, regions, top_k_entropy, vocabulary_kl
from kernelwright.training.losses.cuset import in_windows


@dataclass(frozen=True)
class TokenFacts:
    """One token of the answer."""

    text: str
    """The text that the token adds; empty for an end token, or for a further part of a character."""
    confidence: float
    weight: float
    """The factor of its negative log-probability, sample weight included."""
    cuda: bool
    hardest: bool
    """True if it is in the hardest window."""


@dataclass(frozen=True)
class Explained:
    """The facts of one sample for one model and loss."""

    name: str
    loss_name: str
    parameters: dict[str, Any]
    loss: float
    stats: dict[str, float]
    tokens: tuple[TokenFacts, ...]
    window: int


def explain(settings: SftSettings, number: int, model_path: str | None = None) -> Explained:
    """Explains row `number` (from 0) of a run's data, under its base model or the model in `model_path`.

    Raises `ConfigError` for a row that does not exist or is bad.
    """
    row = _row(settings, number)
    encoder = encoder_of(settings)
    sample = encoder.encode(row) if isinstance(row, Conversation) else row
    if isinstance(sample, BadRow):
        raise ConfigError(f"row {number} ({sample.name}) is not trained on: {sample.reason} {sample.detail}".strip())
    assert isinstance(row, Conversation)
    return _looked_at(settings, encoder, row, sample, model_path or settings.model.path)


def _row(settings: SftSettings, number: int) -> Conversation | BadRow:
    """Returns the row with that number, counting bad rows. Raises `ConfigError`."""
    report, good = RowReport(), 0
    for row in conversations(settings.data, report):
        if report.rows > number >= 0:
            return row if report.rows == number + 1 else report.bad[number - good]
        good += 1
    if not 0 <= number < report.rows:
        raise ConfigError(f"there is no row {number} in {settings.data.path!r}", hint="rows count from 0")
    return report.bad[number - good]


def _looked_at(settings: SftSettings, encoder: Encoder, row: Conversation, sample: Any, model_path: str) -> Explained:
    import torch

    segments = encoder.segments(row, row.own or (len(row.messages) - 1,))
    assert not isinstance(segments, BadRow)  # it was encoded before
    pieces = [piece for s in segments for piece in (_pieces(s.text, s.offsets) if s.own else [""] * len(s.ids))]
    ids = torch.tensor(sample.ids.astype("int64"))[None]
    own = torch.tensor(sample.flags.astype("int64")) & TARGET != 0
    first = max(int(own.nonzero()[0]), 1)  # without a prompt, the first token is not predicted
    logits = _logits(settings, model_path, ids)[:, first - 1 :]
    gold = ids[:, first:, None]
    log_probs = logits.log_softmax(-1).gather(2, gold)[..., 0]
    flags = torch.tensor(sample.flags[first:].astype("int64"))[None]
    cuda, code = (flags & CUDA) != 0, (flags & THOUGHT) == 0
    parameters = settings.loss.parameters()
    more: dict[str, Any] = {}
    if settings.loss.name == "eaft":
        more["entropy"] = top_k_entropy(logits)
    if settings.loss.name == "asft":
        began = (
            logits if model_path == settings.model.path else _logits(settings, settings.model.path, ids)[:, first - 1 :]
        )
        more["kl"] = vocabulary_kl(logits, began)
    if settings.loss.name == "cuset":
        more["window_mask"] = code
    targets = own[None, first:]
    out = load_loss(settings.loss.name)(log_probs, targets, cuda, **parameters, **more)
    window = settings.loss.window or 256
    windowed = in_windows(targets & code, cuda, settings.loss.scope or "all")
    windowed = windowed if windowed.any() else targets
    hardest = regions(log_probs.exp(), windowed, window)
    start, end = int(hardest.start), int(hardest.end)
    assert out.token_weights is not None
    shown = zip(log_probs[0].exp().tolist(), out.token_weights[0].tolist(), cuda[0].tolist(), strict=True)
    framed = [start <= i < end and bool(windowed[0, i]) for i in range(targets.shape[1])]
    tokens = [
        TokenFacts(pieces[first + i], p, w, c, framed[i]) for i, (p, w, c) in enumerate(shown) if bool(targets[0, i])
    ]
    stats = {name: float(value) for name, value in out.stats.items()}
    name, loss = settings.loss.name, float(out.loss)
    return Explained(row.name, name, parameters, loss, stats, tuple(tokens), window)


def _logits(settings: SftSettings, path: str, ids: Any) -> Any:
    """Returns the logits of the model in `path` for each next token of `ids` (1, length), in float32 on the CPU."""
    import torch

    model = run.load_model(settings.model.model_copy(update={"path": path, "dtype": "float32"})).eval()
    model = model.cuda() if torch.cuda.is_available() else model
    run.check_fits(model, int(ids.max()), ids.shape[1])
    with torch.no_grad():
        return model(input_ids=ids[:, :-1].to(model.device)).logits.float().cpu()


def _pieces(text: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """Splits a text by tokens: a character of several tokens goes to the first, a gap to the token after it."""
    found, upto = [], 0
    for _, end in offsets:
        found.append(text[upto:end] if end > upto else "")
        upto = max(upto, end)
    return found


def write_page(explained: Explained, path: Path) -> Path:
    """Writes the page and returns its path."""
    make(path.parent)
    path.write_text(page(explained), encoding="utf-8", errors="replace")
    return path


def page(explained: Explained) -> str:
    """Returns the page's HTML."""
    most = max((t.weight for t in explained.tokens), default=0.0) or 1.0
    spans = "".join(_span(token, most) for token in explained.tokens)
    shown = {"loss": explained.loss, **explained.stats}
    facts = "".join(f"<tr><td>{_escaped(k)}</td><td>{v:.4g}</td></tr>" for k, v in shown.items())
    settings = ", ".join(f"{k} = {v}" for k, v in explained.parameters.items()) or "its defaults"
    title = f"{explained.loss_name} on {explained.name}"
    choices = "".join(
        f'<input type="radio" name="view" id="{key}"{" checked" if key == "confidence" else ""}>'
        f'<label for="{key}">{label}</label>'
        for key, label in (("confidence", "confidence"), ("weight", "token weight"), ("cuda", "CUDA mask"))
    )
    return _PAGE.format(
        title=_escaped(title),
        settings=_escaped(settings),
        window=explained.window,
        choices=choices,
        most=f"{most:.3g}",
        facts=facts,
        tokens=spans,
        count=len(explained.tokens),
    )


def _span(token: TokenFacts, most: float) -> str:
    confidence = token.confidence if math.isfinite(token.confidence) else 0.0
    names = " ".join(n for n, here in (("c", token.cuda), ("h", token.hardest)) if here)
    title = f"p {confidence:.4f}  weight {token.weight:.3f}" + ("  CUDA" if token.cuda else "")
    style = f"--p:{confidence:.3f};--w:{token.weight / most:.3f}"
    text = _escaped(token.text).replace("\n", "↵\n") if token.text.strip("\n") == "" else _escaped(token.text)
    return f'<span class="{names}" style="{style}" title="{title}">{text}</span>'


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --low: 214 69 65; --high: 46 139 87; --mark: 225 140 0; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; }}
h1 {{ font-size: 1.25rem; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; font-size: .85rem; columns: 2; }}
td {{ padding: .1rem .8rem .1rem 0; font-variant-numeric: tabular-nums; }}
pre {{ font: 13px/1.6 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; padding: 1rem;
  border: 1px solid rgb(128 128 128 / .4); border-radius: 6px; }}
pre span {{ border-radius: 2px; }}
pre span.h {{ box-shadow: inset 0 -2px 0 rgb(var(--mark)); }}
#confidence:checked ~ pre span {{
  background: color-mix(in srgb, rgb(var(--high) / .45) calc(100% * var(--p)), rgb(var(--low) / .55)); }}
#weight:checked ~ pre span {{ background: rgb(70 110 220 / calc(.6 * var(--w))); }}
#cuda:checked ~ pre span.c {{ background: rgb(118 185 0 / .4); }}
label {{ margin-right: 1rem; }}
.key b {{ padding: 0 .5rem; border-radius: 2px; font-weight: normal; }}
</style></head><body>
<h1>{title}</h1>
<p>{count} target tokens; parameters: {settings}. Underlined: the hardest window of {window} tokens, the one with the
least mean confidence. Point at a token for its numbers.</p>
{choices}
<p class="key">confidence: <b style="background:rgb(var(--low) / .55)">0</b><b
style="background:rgb(var(--high) / .45)">1</b> · token weight: <b style="background:rgb(70 110 220 / 0)">0</b><b
style="background:rgb(70 110 220 / .6)">{most}</b> · CUDA: <b style="background:rgb(118 185 0 / .4)">in a kernel or a
launch</b></p>
<pre>{tokens}</pre>
<table>{facts}</table>
</body></html>
"""
