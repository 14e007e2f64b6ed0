"""Drafts regression, classification and metric losses, by module, function and formula."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.registry import Family, rows

_REDUCTIONS = ("mean", "mean", "mean", "sum", "none")


def _pair(t: Draft, draw: str = "own", other: str = "own", rank: int = 0) -> tuple[DraftTensor, DraftTensor]:
    """Drafts predictions and targets of one shape."""
    x = memory_bound_input(t, rank or t.random.choice((1, 2, 2, 2, 3, 4)), draw, "predictions", total=_total(t))
    return x, t.input("targets", t.inputs[0].shape, other)


def _total(t: Draft) -> float:
    return sizes.log_uniform(t.random, 4e5, 6e7)


def _reduced(t: Draft, text: str, shape: tuple[int, ...], reduction: str) -> DraftTensor:
    """Drafts the mean or sum of an expression, or the expression itself."""
    if reduction == "none":
        return t.step(text, shape)
    inner = DraftTensor(text, shape)
    done = t.pick(f"torch.{reduction}({text})", f"{inner.atom}.{reduction}()", f"torch.{reduction}({text})")
    return t.step(done, (), "reduction", flops=3.0 * inner.elements)


def _library(t: Draft, cls: str, function: str, operands: str, options: list[tuple[str, str]], reduction: str) -> str:
    """Returns a loss by its module or its function."""
    shown = [] if reduction == "mean" and t.chance(0.8) else [("reduction", t.number(reduction))]
    arguments = [*options, *shown]
    texts = ", ".join(f"{k}={v}" for k, v in arguments)
    if t.style.spelling == "module" or (t.chance(0.4) and not any("self." in v for _, v in options)):
        layer = t.module("Loss", cls, [("weight", None), *arguments])  # none by position
        return f"{layer}({operands})"
    return f"{t.prefix()}.{function}({operands}{', ' + texts if texts else ''})"


def _regression(name: str, cls: str, formulas: tuple[str, ...], option: str = "") -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        p, q = _pair(t)
        reduction = t.random.choice(_REDUCTIONS)
        value = t.random.choice((0.5, 2.0, 0.1, 0.25, 1.5)) if option and t.chance(0.5) else None
        t.mark(name, reduction=reduction, option=value)
        t.say(
            {"mse_loss": "mean squared error", "l1_loss": "mean absolute error"}.get(
                name, name.replace("_", " ").replace("l1", "L1")
            )
        )
        if formulas and value is None and t.chance(0.5):
            t.kept |= {p.text, q.text}
            t.finish(_reduced(t, t.pick(*formulas).format(p=p, q=q), p.shape, reduction))
            return
        where = "init" if t.style.spelling == "module" else "forward"
        options = [(option, t.option(option, value, default=1.0, where=where))] if value is not None else []
        text = _library(t, cls, name, f"{p}, {q}", options, reduction)
        t.finish(t.step(text, p.shape if reduction == "none" else (), "reduction"))

    return make


def cross_entropy(t: Draft) -> None:
    """Drafts cross-entropy of logits and class numbers."""
    batch, classes = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 4e5, 6e7))
    lead, count = t.dim("batch", batch), t.dim("classes", max(2, min(classes, 50000)))
    extra = t.dim("length", t.random.choice((16, 64, 128, 256))) if t.chance(0.15) and batch * classes < 3e5 else None
    tail = (extra,) if extra else ()
    x = t.input("logits", (lead, count, *tail))
    y = t.input("targets", (lead, *tail), "int", bound=count)
    reduction = t.random.choice(_REDUCTIONS)
    smoothing = t.random.choice((0.1, 0.05, 0.2)) if t.chance(0.12) else None
    t.mark("cross_entropy", reduction=reduction, rank=x.rank, smoothing=smoothing)
    t.say(t.pick("cross-entropy", "the cross-entropy loss", "softmax cross-entropy"))
    where = "init" if t.style.spelling == "module" else "forward"
    options = (
        [("label_smoothing", t.option("label_smoothing", smoothing, default=0.0, where=where))] if smoothing else []
    )
    if not options and t.chance(0.2):
        text = f"{t.prefix()}.nll_loss({t.prefix()}.log_softmax({x}, dim=1), {y}, reduction={t.number(reduction)})"
    else:
        text = _library(t, "CrossEntropyLoss", "cross_entropy", f"{x}, {y}", options, reduction)
    t.finish(t.step(text, y.shape if reduction == "none" else (), "reduction", flops=6.0 * x.elements))


def nll(t: Draft) -> None:
    """Drafts negative log-likelihood of class numbers under log-probabilities."""
    batch, classes = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 4e5, 6e7))
    lead, count = t.dim("batch", batch), t.dim("classes", max(2, min(classes, 50000)))
    x, y = t.input("logits", (lead, count), "log_probs"), t.input("targets", (lead,), "int", bound=count)
    reduction = t.random.choice(_REDUCTIONS)
    t.mark("nll_loss", reduction=reduction)
    t.say(t.pick("negative log-likelihood", "the NLL loss"))
    if t.chance(0.3):
        picked = f"{x}.gather(1, {y}.unsqueeze(1))" + ("" if reduction != "none" else ".squeeze(1)")
        t.finish(_reduced(t, f"-{picked}", (batch,) if reduction == "none" else (batch, 1), reduction))
        return
    text = _library(t, "NLLLoss", "nll_loss", f"{x}, {y}", [], reduction)
    t.finish(t.step(text, y.shape if reduction == "none" else (), "reduction", flops=3.0 * batch))


def kl_div(t: Draft) -> None:
    """Drafts Kullback-Leibler divergence of two distributions over the last dimension."""
    logs = t.chance(0.5)
    p, q = _pair(t, "log_probs" if logs else "probs", "probs", 2)
    reduction = t.pick("batchmean", "batchmean", "batchmean", "sum", "mean")
    t.mark("kl_div", reduction=reduction, logs=int(logs))
    t.say(t.pick("Kullback-Leibler divergence", "KL divergence of two distributions", "relative entropy"))
    operand = str(p) if logs else t.pick(f"torch.log({p})", f"{p}.log()")
    if t.chance(0.3):
        t.kept |= {p.text, q.text}
        text = f"{q} * (torch.log({q}) - {operand})"
        total = f"torch.sum({text})" if t.chance(0.5) else f"({text}).sum()"
        if reduction == "batchmean":
            total += f" / {p}.{t.pick('shape[0]', 'size(0)')}"
        done = total if reduction != "mean" else f"torch.mean({text})"
        t.finish(t.step(done, (), "reduction", flops=4.0 * p.elements))
        return
    text = _library(t, "KLDivLoss", "kl_div", f"{operand}, {q}", [], reduction)
    if "reduction" not in text and not text.startswith("self."):
        text = text[:-1] + f", reduction={t.number(reduction)})"
    t.finish(t.step(text, (), "reduction", flops=4.0 * p.elements))


def hinge(t: Draft) -> None:
    """Drafts hinge loss of scores and signs."""
    p, q = _pair(t, "randn", "sign", t.random.choice((1, 2, 2)))
    reduction = t.random.choice(("mean", "mean", "sum", "none"))
    margin = t.option("margin", t.random.choice((1, 1, 1.0, 0.5, 2.0)), default=1.0)
    squared = t.chance(0.15)
    t.mark("hinge_loss", reduction=reduction, squared=int(squared) or None)
    t.say(t.pick("the hinge loss", "hinge loss for two classes", "a margin loss on signed labels"))
    t.kept |= {p.text, q.text}
    inner = f"{margin} - {t.pick(f'{p} * {q}', f'{q} * {p}')}"
    text = t.pick(
        f"torch.clamp({inner}, min=0)",
        f"torch.relu({inner})",
        f"torch.clamp({inner}, min=0.0)",
        f"{t.prefix()}.relu({inner})",
    )
    t.finish(_reduced(t, f"{text} ** 2" if squared else text, p.shape, reduction))


def triplet(t: Draft) -> None:
    """Drafts triplet margin loss of anchors, positives and negatives."""
    rows_, cols = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 4e5, 3e7))
    dims = (t.dim("batch", rows_), t.dim("features", cols))
    a, p, n = (t.input(r, dims) for r in ("anchor", "positive", "negative"))
    margin = t.random.choice((1.0, 0.5, 0.2, 2.0, 0.3))
    reduction = t.random.choice(("mean", "mean", "sum", "none"))
    t.mark("triplet_loss", reduction=reduction)
    t.say(t.pick("the triplet margin loss", "a triplet loss", "triplet loss for metric learning"))
    where = "init" if t.style.spelling == "module" else "forward"
    if t.chance(0.35):
        t.kept |= {a.text, p.text, n.text}
        shown = t.option("margin", margin, default=1.0)
        near = t.named(t.step(t.pick(f"torch.norm({a} - {p}, dim=1)", f"(({a} - {p}) ** 2).sum(dim=1)"), (rows_,)))
        far = t.named(t.step(near_to(t, a, n, near.text), (rows_,)))
        t.finish(_reduced(t, f"torch.relu({near} - {far} + {shown})", (rows_,), reduction))
        return
    options = (
        [("margin", t.option("margin", margin, default=1.0, where=where))] if margin != 1.0 or t.chance(0.5) else []
    )
    text = _library(t, "TripletMarginLoss", "triplet_margin_loss", f"{a}, {p}, {n}", options, reduction)
    t.finish(t.step(text, (rows_,) if reduction == "none" else (), "reduction", flops=6.0 * a.elements))


def near_to(t: Draft, a: DraftTensor, n: DraftTensor, near: str) -> str:
    """Returns a triplet's second distance in the spelling of the first."""
    line = next(line for line in t.lines if line.startswith(f"{near} = "))
    return f"torch.norm({a} - {n}, dim=1)" if "norm" in line else f"(({a} - {n}) ** 2).sum(dim=1)"


def cosine(t: Draft) -> None:
    """Drafts one less the cosine similarity, averaged."""
    p, q = _pair(t, rank=2)
    reduction = t.random.choice(("mean", "mean", "sum", "none"))
    t.mark("cosine_loss", reduction=reduction)
    t.say(t.pick("a cosine distance loss", "one minus cosine similarity", "the cosine embedding distance"))
    t.kept |= {p.text, q.text}
    dim = t.option("dim", t.random.choice((1, 1, -1)), default=1)
    if t.chance(0.7):
        sim = f"{t.prefix()}.cosine_similarity({p}, {q}, dim={dim})"
    else:
        sim = f"({p} * {q}).sum(dim={dim}) / ({p}.norm(dim={dim}) * {q}.norm(dim={dim}))"
    found = t.step(sim, p.shape[:1], "reduction", flops=6.0 * p.elements)
    if t.chance(0.25):
        t.finish(_reduced(t, str(found), p.shape[:1], reduction))
    else:
        t.finish(_reduced(t, f"{t.pick('1', '1.0')} - {found.atom}", p.shape[:1], reduction))


def bce(t: Draft) -> None:
    """Drafts binary cross-entropy of probabilities or logits with targets between 0 and 1."""
    logits = t.chance(0.6)
    p, q = _pair(t, "randn" if logits else "unit", "unit")
    reduction = t.random.choice(_REDUCTIONS)
    t.mark("bce_logits" if logits else "bce", reduction=reduction)
    t.say(t.pick("binary cross-entropy", "the BCE loss") + (" on logits" if logits else ""))
    name = ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits") if logits else ("BCELoss", "binary_cross_entropy")
    if not logits and t.chance(0.3):
        t.kept |= {p.text, q.text}
        t.finish(_reduced(t, f"-({q} * torch.log({p}) + (1 - {q}) * torch.log(1 - {p}))", p.shape, reduction))
        return
    text = _library(t, name[0], name[1], f"{p}, {q}", [], reduction)
    t.finish(t.step(text, p.shape if reduction == "none" else (), "reduction", flops=8.0 * p.elements))


def poisson(t: Draft) -> None:
    """Drafts Poisson negative log-likelihood, or the logarithm of a hyperbolic cosine."""
    if t.chance(0.5):
        p, q = _pair(t, "own", "rand")
        t.mark("poisson_nll")
        t.say("the Poisson negative log-likelihood")
        text = _library(t, "PoissonNLLLoss", "poisson_nll_loss", f"{p}, {q}", [], "mean")
        t.finish(t.step(text, (), "reduction", flops=4.0 * p.elements))
        return
    p, q = _pair(t)
    t.mark("log_cosh_loss")
    t.say("the log-cosh loss")
    t.finish(_reduced(t, f"torch.log(torch.cosh({p} - {q}))", p.shape, t.random.choice(("mean", "sum"))))


def margin_ranking(t: Draft) -> None:
    """Drafts ranking loss of two scores and a sign."""
    p, q = _pair(t, "randn", "randn", t.random.choice((1, 2)))
    sign = t.input("sign", t.inputs[0].shape, "sign")
    margin = t.random.choice((0.0, 0.5, 1.0, 0.1))
    reduction = t.random.choice(_REDUCTIONS)
    t.mark("margin_ranking_loss", reduction=reduction)
    t.say("the margin ranking loss")
    where = "init" if t.style.spelling == "module" else "forward"
    options = [("margin", t.option("margin", margin, default=0.0, where=where))] if margin else []
    text = _library(t, "MarginRankingLoss", "margin_ranking_loss", f"{p}, {q}, {sign}", options, reduction)
    t.finish(t.step(text, p.shape if reduction == "none" else (), "reduction", flops=4.0 * p.elements))


def families() -> list[Family]:
    """Returns all losses."""
    makers: list[tuple[str, Callable[[Draft], None]]] = [
        ("mse_loss", _regression("mse_loss", "MSELoss", ("({p} - {q}) ** 2", "torch.square({p} - {q})",
        "({p} - {q}).pow(2)"))),
        ("l1_loss", _regression("l1_loss", "L1Loss", ("torch.abs({p} - {q})", "({p} - {q}).abs()"))),
        ("smooth_l1_loss", _regression("smooth_l1_loss", "SmoothL1Loss", (), "beta")),
        ("huber_loss", _regression("huber_loss", "HuberLoss", (), "delta")),
        ("cross_entropy", cross_entropy), ("nll_loss", nll), ("kl_div", kl_div), ("hinge_loss", hinge),
        ("triplet_loss", triplet), ("cosine_loss", cosine), ("bce_loss", bce), ("other_losses", poisson),
        ("margin_ranking_loss", margin_ranking),
    ]  # fmt: skip
    return rows("loss", 9.0, makers)
