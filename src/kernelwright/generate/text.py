"""Renders a `Draft` as a task's file: imports, class, constants, get_inputs and get_init_inputs."""

from __future__ import annotations

from kernelwright.generate import words
from kernelwright.generate.draft import Dim, Draft, Extent, Input, Param, size_of
from kernelwright.generate.style import Style


def render(draft: Draft) -> str:
    """Returns the text of a finished draft."""
    return _Page(draft).text()


class _Page:
    """The parts of one file; every random choice comes from the draft's generator."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.style: Style = draft.style
        self.random = draft.random
        self.constants: dict[str, str] = {}
        """Module-level constants in order of first use: name -> Python text."""
        self.tuples: dict[tuple[str, ...], str] = {}
        """Elements of a tuple constant -> its name."""
        named = self.style.constants
        self.named = {id(d) for d in draft.dims if named == "named" or (named == "mixed" and draft.chance(0.5))}
        if any(".ConvTranspose" in line for line in draft.init_lines):
            self._name_shared()

    def text(self) -> str:
        style = self.style
        get_inputs, get_init = self._get_inputs(), self._get_init_inputs()
        self._unused_constant()
        constants = self._constants()
        model = self._model()
        gap = "\n" * (style.seed_spaces + 1)
        parts = [self._imports()]
        if style.place == "before":
            parts += [constants, model, get_inputs, get_init]
        elif style.place == "late":
            parts += [model, get_init, constants, get_inputs] if self.draft.chance(0.3) else [model, constants]
            parts += [] if get_inputs in parts else [get_inputs, get_init]
        else:
            parts += [model, constants, get_inputs, get_init]
        source = gap.join(p for p in parts if p) + "\n"
        if style.trailing_spaces:
            source = source.replace("\n\n    def forward", "\n    \n    def forward")
        return source

    def _imports(self) -> str:
        lines = ["import torch", "import torch.nn as nn"]
        used = self.draft.modules_used
        if "F" in used or self.draft.chance(0.08):
            lines.append("import torch.nn.functional as F")
        if "math" in used:
            lines.insert(0 if self.draft.chance(0.4) else len(lines), "import math")
        return "\n".join(lines)

    # The class

    def _model(self) -> str:
        draft = self.draft
        prefix = "torch.nn" if self.style.module_prefix == "torch.nn" and draft.chance(0.5) else "nn"
        lines = [f"class Model({prefix}.Module):", *_indent(self._class_doc(), 4)]
        if len(lines) > 1 and draft.chance(0.3):
            lines.append("")
        lines += _indent(self._init(), 4)
        lines.append("")
        lines += _indent(self._forward(), 4)
        return "\n".join(lines)

    def _init(self) -> list[str]:
        draft = self.draft
        arguments = [self._parameter(p) for p in self._ordered()]
        head = f"def __init__(self{''.join(', ' + a for a in arguments)}):"
        if len(head) > 100 and draft.chance(0.4):
            head = "def __init__(\n    self,\n" + "".join(f"    {a},\n" for a in arguments) + "):"
        lines = head.split("\n") + _indent(self._init_doc(), 4)
        lines.append("    super(Model, self).__init__()" if self.style.super_long else "    super().__init__()")
        lines += [f"    {line}" for line in draft.init_lines]
        return lines

    def _parameter(self, param: Param) -> str:
        text = param.name
        annotated = self.draft.chance(self.style.annotate) and "Optional" not in param.annotation
        if annotated:
            text += f": {param.annotation}"
        if param.default is not None:
            text += f" = {param.default}" if annotated else f"={param.default}"
        return text

    def _ordered(self) -> list[Param]:
        return [p for p in self.draft.params if p.default is None] + [
            p for p in self.draft.params if p.default is not None
        ]

    def _forward(self) -> list[str]:
        draft = self.draft
        annotated = draft.chance(self.style.annotate)
        names = []
        for item in draft.inputs:
            kind = type(eval_number(item.value)).__name__ if item.draw == "scalar" else "torch.Tensor"
            names.append(f"{item.name}: {kind}" if annotated else item.name)
        arrow = " -> torch.Tensor" if annotated and draft.chance(0.8) else ""
        lines = [f"def forward(self{''.join(', ' + n for n in names)}){arrow}:"]
        lines += _indent(self._forward_doc(), 4)
        for number, statement in enumerate(draft.lines):
            if number in draft.comments:
                lines.append(f"    {draft.comments[number]}")
            lines.append(f"    {statement}")
        assert draft.result is not None
        result = str(draft.result)
        if self.style.return_name and not result.isidentifier():
            name = draft.name(words.LOCALS["value"])
            lines.append(f"    {name} = {result}")
            result = name
        lines.append(f"    return {result}")
        return lines

    # Docstrings

    def _summary(self, patterns: tuple[str, ...]) -> str:
        phrases = list(dict.fromkeys(self.draft.phrases)) or ["an operation"]
        joiner = self.random.choice(words.JOINERS)
        if len(phrases) > 1 and joiner == ", ":
            what = ", ".join(phrases[:-1]) + " and " + phrases[-1]
        else:
            what = joiner.join(phrases)
        pattern = self.random.choice(patterns)
        text = pattern.format(what)
        return text[0].upper() + text[1:]

    def _class_doc(self) -> list[str]:
        kind = self.style.class_doc
        if kind == "none":
            return []
        pattern = self.random.choice(words.SUBJECTS) + " " + self.random.choice(words.VERBS)
        first = self._summary((pattern,)) + self.random.choice((".", ".", ""))
        if self.draft.chance(0.25):
            first = self._summary(words.IMPERATIVES)
        body = [first]
        if kind == "lines":
            body += ["", *self.random.sample(words.NOTES, self.random.choice((1, 1, 2)))]
        if kind == "arguments" and self.draft.params:
            body += ["", *self._argument_lines(self._ordered())]
        return self._doc(body)

    def _argument_lines(self, params: list[Param]) -> list[str]:
        lines = [self.random.choice(words.HEADINGS)]
        typed = self.draft.chance(0.7)
        defaults = self.draft.chance(0.5)
        for param in params:
            kind = f" ({param.annotation}{', optional' if param.default is not None else ''})" if typed else ""
            tail = f" Defaults to {param.default}." if defaults and param.default is not None else ""
            lines.append(f"    {param.name}{kind}: {param.note}{'.' if tail else ''}{tail}")
        return lines

    def _init_doc(self) -> list[str]:
        kind = self.style.init_doc
        if kind == "none":
            return []
        first = self.random.choice(("Sets up the layers.", "Initialise.", "Builds the module.", "Constructor.",
                                    "Creates what forward needs.", "Stores the settings."))  # fmt: skip
        params = self._ordered()
        return self._doc([first, "", *self._argument_lines(params)] if kind == "arguments" and params else [first])

    def _forward_doc(self) -> list[str]:
        kind = self.style.forward_doc
        if kind == "none":
            return []
        body = [self._summary(words.IMPERATIVES)]
        if kind == "arguments":
            body += ["", self.random.choice(words.HEADINGS)]
            typed = self.draft.chance(0.7)
            for item in self.draft.inputs:
                body.append(f"    {item.name}{self._type_of(item) if typed else ''}: {self._note_of(item)}")
            body += ["", self.random.choice(words.RETURN_HEADINGS)]
            shown = self.random.choice(("torch.Tensor: ", "", "Tensor: "))
            body.append(f"    {shown}{self.random.choice(words.OUTPUT_NOTES)}{self.random.choice(('.', ''))}")
        return self._doc(body)

    def _type_of(self, item: Input) -> str:
        return " (number)" if item.draw == "scalar" else self.random.choice((" (torch.Tensor)", " (Tensor)"))

    def _note_of(self, item: Input) -> str:
        if item.draw == "scalar":
            return "a Python number"
        note = item.note or self.random.choice(words.INPUT_NOTES)
        shape = ", ".join(e.name if isinstance(e, Dim) else str(e) for e in item.shape)
        comma = "," if len(item.shape) == 1 else ""
        return note + self.random.choice((f" of shape ({shape}{comma})", f", shape ({shape}{comma})", ""))

    def _doc(self, body: list[str]) -> list[str]:
        if len(body) == 1 and self.draft.chance(0.5):
            return [f'"""{body[0]}"""']
        if self.draft.chance(0.3):
            return [f'"""{body[0]}', *body[1:], '"""']
        return ['"""', *body, '"""']

    # Constants and inputs

    def _number(self, extent: Extent) -> str:
        """Returns an extent outside the class: its constant, added where missing, or a number."""
        if not isinstance(extent, Dim):
            return str(extent)
        if id(extent) not in self.named:
            return str(extent.value)
        self.constants.setdefault(extent.name, str(extent.value))
        return extent.name

    def _shape(self, shape: tuple[Extent, ...]) -> str:
        """Returns the arguments of torch.randn for a shape."""
        if not shape or self.style.shape == "dims" or len(shape) == 1:
            return ", ".join(self._number(e) for e in shape)
        if self.style.shape == "input_shape" and isinstance(shape[0], Dim) and shape[0].batch:
            name = self._tuple(shape[1:], ("input_shape", "feature_shape", "sample_shape", "inner_shape"))
            return f"{self._number(shape[0])}, *{name}"
        name = self._tuple(shape, ("shape", "input_shape", "x_shape", "size", "dims"))
        return self.random.choice((name, f"*{name}"))

    def _tuple(self, shape: tuple[Extent, ...], names: tuple[str, ...]) -> str:
        """Returns a tuple constant of numbers, or of constants where another place uses one of its extents.

        It never mixes both: sizes are reduced by constants, and a tuple that depends on one cannot be changed itself.
        """
        if any(isinstance(e, Dim) and e.name in self.constants for e in shape):
            for extent in shape:
                if isinstance(extent, Dim):
                    self.constants.setdefault(extent.name, str(extent.value))
            texts = tuple(e.name if isinstance(e, Dim) else str(e) for e in shape)
        else:
            texts = tuple(str(size_of(e)) for e in shape)
        if texts not in self.tuples:
            name = self.draft.name(names)
            self.tuples[texts] = name
            self.constants[name] = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        return self.tuples[texts]

    def _constants(self) -> str:
        if not self.constants:
            return ""
        lines = [f"{name} = {self._value(value)}{self._remark(name)}" for name, value in self.constants.items()]
        plain = all(name.isidentifier() and value.lstrip("-").isdigit() for name, value in self.constants.items())
        if plain and 1 < len(lines) <= 4 and "#" not in "".join(lines) and self.draft.chance(0.08):
            lines = [f"{', '.join(self.constants)} = {', '.join(self.constants.values())}"]
        if self.draft.chance(0.25):
            lines.insert(0, self.random.choice(words.CONSTANT_COMMENTS))
        return "\n".join(lines)

    def _value(self, text: str) -> str:
        """Returns a number, rarely as a product or a power."""
        if not text.isdigit() or int(text) < 64 or not self.draft.chance(0.05):
            return text
        value = int(text)
        if value & (value - 1) == 0 and self.draft.chance(0.5):
            return f"2 ** {value.bit_length() - 1}"
        factor = next((f for f in (1024, 1000, 64, 32, 10, 7, 3, 2) if value % f == 0 and value > f), 0)
        return f"{value // factor} * {factor}" if factor else text

    def _remark(self, name: str) -> str:
        if not self.style.noise or not self.draft.chance(0.3 * self.style.noise):
            return ""
        return f"  # {self.random.choice((name.replace('_', ' '), *words.CONSTANT_REMARKS))}"

    def _unused_constant(self) -> None:
        """Adds a constant that nothing reads, as shortened files have."""
        if self.constants and self.draft.chance(0.04):
            name, value = self.random.choice(words.UNUSED_CONSTANTS)
            if name not in self.draft.taken:
                self.constants[self.draft.name((name,))] = value

    def _get_inputs(self) -> str:
        if self.style.place == "before" or self.draft.chance(0.5):
            for dim in self.draft.dims:
                self._number(dim) if self._is_shared(dim) else None
        made = [(item.name, *self._made(item)) for item in self.draft.inputs]
        lines = ["def get_inputs():"]
        if self.style.input_doc == "line":
            lines.append(f'    """{self.random.choice(("Random inputs.", "Makes the inputs of one call."))}"""')
        if self.style.inputs_form == "inline" and not any(more for _, _, more in made):
            joined = ", ".join(text for _, text, _ in made)
            return "\n".join([*lines, f"    return [{joined}]"])
        for name, text, more in made:
            lines.append(f"    {name} = {text}")
            lines += [f"    {name} = {m.format(name)}" for m in more]
        return "\n".join([*lines, f"    return [{', '.join(name for name, _, _ in made)}]"])

    def _name_shared(self) -> None:
        """Makes constants of the extents that inputs and constructor share.

        Torch's meta device accepts a transposed convolution with wrong channels. Without shared constants, size
        reduction could not find out which numbers have to change together.
        """
        for dim in self.draft.dims:
            if self._is_shared(dim):
                self.named.add(id(dim))
                self._number(dim)

    def _is_shared(self, dim: Dim) -> bool:
        return any(p.value is dim for p in self.draft.params)

    def _made(self, item: Input) -> tuple[str, list[str]]:
        """Returns an input's expression, and the lines that change it afterwards."""
        if item.draw == "scalar":
            return item.value, []
        if item.draw in ("int", "bool", "sign"):
            return self._integers(item), []
        kind = f", dtype=torch.{item.dtype}" if item.dtype != "float32" else ""
        shape = self._shape(item.shape)
        sampler = {"own": self.style.sampler, "unit": "rand"}.get(item.draw, item.draw)
        if item.draw == "positive":
            made = f"torch.rand({shape}{kind})"
            return self.random.choice((f"{made} + 0.1", f"{made} + 0.5", f"{made} * 2 + 0.05", f"{made} + 1e-2")), []
        if item.draw == "near_one":
            made = f"torch.rand({shape}{kind})"
            return self.random.choice((f"{made} * 0.2 + 0.9", f"{made} + 0.5", f"{made} * 0.1 + 0.95")), []
        if item.draw == "wide":
            return f"torch.randn({shape}{kind}) * {self.random.choice(('4', '10', '5.0'))}", []
        if item.draw in ("probs", "log_probs"):
            name = "softmax" if item.draw == "probs" else "log_softmax"
            made = self.random.choice((f"torch.randn({shape})", f"torch.rand({shape})"))
            return self.random.choice((f"{made}.{name}(dim=-1)", f"torch.{name}({made}, dim=-1)")), []
        if item.draw in ("tril", "triu"):
            made = f"torch.{self.style.sampler}({shape}{kind})"
            return self.random.choice((f"torch.{item.draw}({made})", f"{made}.{item.draw}()")), []
        if item.draw == "symmetric":
            after = self.random.choice(("({0} + {0}.T) / 2", "0.5 * ({0} + {0}.T)", "{0} + {0}.T"))
            return f"torch.{self.style.sampler}({shape}{kind})", [after]
        made = f"torch.{sampler}({shape}{kind})"
        if item.draw == "own" and self.draft.chance(0.08):
            made += self.random.choice((" * 0.5", " * 2", " - 0.5", " * 2 - 1", " * 3"))
        return made, []

    def _integers(self, item: Input) -> str:
        shape = self._shape(item.shape)
        if not shape.startswith("*") or "," in shape:
            packed = f"({shape},)" if len(item.shape) == 1 else f"({shape})"
            shape = packed if shape not in self.tuples.values() else shape
        else:
            shape = shape[1:]
        if item.draw == "int":
            return f"torch.randint(0, {self._number(item.bound)}, {shape})"
        if item.draw == "sign":
            return f"torch.randint(0, 2, {shape}).float() * 2 - 1"
        return self.random.choice(
            (f"torch.randint(0, 2, {shape}).bool()", f"torch.randint(0, 2, {shape}, dtype=torch.bool)",
             f"torch.rand({shape}) > 0.5")
        )  # fmt: skip

    def _get_init_inputs(self) -> str:
        params = self._ordered()
        needed = [i for i, p in enumerate(params) if p.default != p.value]
        count = max(needed, default=-1) + 1
        while count < len(params) and self.draft.chance(0.4):
            count += 1
        values = [self._passed(p) for p in params[:count]]
        comment = ""
        if not values and self.draft.chance(0.25):
            comment = self.random.choice(words.NO_INIT_COMMENTS)
        return f"def get_init_inputs():\n    return [{', '.join(values)}]{comment}"

    def _passed(self, param: Param) -> str:
        if isinstance(param.value, Dim):
            return self._number(param.value)
        if self.style.constants == "literal" or self.draft.chance(0.35):
            return param.value
        self.constants[param.name] = param.value
        return param.name


def eval_number(text: str) -> float | int:
    """Returns a number from its own `repr`."""
    return float(text) if any(c in text for c in ".en") else int(text)


def _indent(lines: list[str], spaces: int) -> list[str]:
    return [" " * spaces + line if line else line for line in lines]
