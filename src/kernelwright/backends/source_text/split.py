"""Splits CUDA text into device text for NVRTC and host text for g++, with line numbers kept.

Every top-level declaration goes to the device, to the host, or to both. Text omitted on one side is replaced by
newlines, so compilers on both sides report the candidate's own line numbers. On the host a kernel's body becomes a stub
that passes its arguments to the runner. Nothing is compiled here, and only macros that define whole kernels or their
parameters are expanded (`macros`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernelwright.backends.source_text import conditionals, dispatch, lambdas, members, reachable, stubs
from kernelwright.backends.source_text.declarations import (
    Chunk,
    FunctionParameter,
    TemplateParameter,
    parameters,
    read_chunk,
    scopes_named,
    template_arguments,
)
from kernelwright.backends.source_text.lambdas import DeviceLambda
from kernelwright.backends.source_text.launches import ANNOTATIONS, HostText, UnsupportedSource
from kernelwright.backends.source_text.macros import expand_kernel_macros, expand_parameter_macros, without_dead_code
from kernelwright.backends.source_text.tokens import Token, blank, matching, tokenize
from kernelwright.machine import device_std
from kernelwright.machine.nvrtc import ARCH

__all__ = ["KernelText", "Split", "UnsupportedSource", "split"]

_HOST_ONLY = re.compile(
    r"\b(?:torch|at|c10|py|pybind11)\s*::\s*(?!Half\b|BFloat16\b|Float8_\w+|complex\b|\w*Accessor\w*|\w*PtrTraits\b"
    r"|acc_type\b|opmath_type\b|PhiloxCudaState\b|(?:native|cuda)\s*::\s*(?:compat|philox|cuda_utils)\b)"
    r"|\bstd\s*::\s*(?:vector|string|map|unordered_map|set|unique_ptr|shared_ptr|function|mutex|optional|cout|thread)\b"
    r"|\bcuda(?:Stream(?!_t\b)|Event(?!_t\b)|Error|DeviceProp|Graph|Malloc|Free|Memcpy|Memset|Create|Destroy|Resource"
    r"|Texture(?!Object_t\b)|Array|ChannelFormat|Func|Occupancy|Launch|Host|Get|Set)\w*|\bcublas\w+|\b(?:cudnn|CUDNN_)\w+|\bIntArrayRef\b"
)
THRUST = re.compile(r"#\s*include\s*<thrust/")
HOST_ALGORITHMS = re.compile(THRUST.pattern + r"|\bcub\s*::\s*Device\w+")
"""Matches algorithms that run in the host half of a whole program, together with their device functors."""
_DEVICE_ONLY = re.compile(
    r"(?<!\w::)\b(?:(?:nvcuda|wmma|cooperative_groups|cg|cuda)\s*::"
    r"|cub\s*::(?!\s*(?:Block(?:Load|Store|Scan|Reduce|Exchange)|Warp(?:Scan|Reduce)|BLOCK_\w+)\b))"
)
_SCOPE_HEADS = {"namespace", "inline", "extern"}
_TORCH_QUALIFIERS = {"C10_DEVICE": {"__device__"}, "C10_HOST_DEVICE": {"__host__", "__device__"}}
_ARCH = re.sub(r"\D", "", ARCH) + "0"
"""__CUDA_ARCH__ of device text."""


@dataclass(frozen=True)
class KernelText:
    """One `__global__` function: qualified `name`; `template` tells whether it has template parameters."""

    name: str
    template: bool
    line: int


@dataclass
class Split:
    """The device and host texts, with facts about the source."""

    device: str
    host: str
    kernels: tuple[KernelText, ...] = ()
    guesses: tuple[str, ...] = ()
    """Launched template instances with known arguments; `scalar_t` is float or double, as dispatched."""
    more_guesses: tuple[str, ...] = ()
    """The same for the other types of the enclosing AT_DISPATCH_*."""
    device_words: frozenset[str] = frozenset()
    device_lambdas: tuple[DeviceLambda, ...] = ()
    """Lambdas of host code whose bodies are device code."""
    host_functions: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    """Names of types omitted from device code because they use host-only names."""
    host_tables: tuple[tuple[str, int], ...] = ()
    """Namespace-scope constant arrays without a device annotation, with their lines."""
    device_for: Callable[[str], str] = str
    """Returns a whole program's device text for the given name expressions of kernel instances, which may name types
    that `device` lacks."""


@dataclass
class _SplitState:
    source: str
    tokens: list[Token]
    text: HostText
    device: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    position: int = 0
    scopes: list[str] = field(default_factory=list)
    kernels: list[KernelText] = field(default_factory=list)
    constants: set[str] = field(default_factory=set)
    qualifiers: dict[str, set[str]] = field(default_factory=lambda: dict(_TORCH_QUALIFIERS))
    """Annotations by macro name: torch's macros, then the text's own."""
    whole: bool = False
    """A program with `main`, whose kernels and variables are identified by address, not by name (`program`)."""
    relocatable: bool = False
    """A file of a program whose device variables other files may name."""
    on_host: bool = False
    """A program whose device functions also run on the host: it passes them to Thrust or CUB."""
    device_functions: list[tuple[int, str, str]] = field(default_factory=list)
    """Index in `host`, name and host text of device-only functions; emitted only if host code names them."""
    defined: set[str] = field(default_factory=set)
    """Kernels that have a body."""
    templates: dict[str, list[TemplateParameter]] = field(default_factory=dict)
    specialisations: list[tuple[int, str]] = field(default_factory=list)
    """Index in `host` and name of each explicit specialisation of a kernel."""
    specialised: set[str] = field(default_factory=set)
    """Kernel templates whose stub also serves their specialisations."""
    declared: list[tuple[int, str, Chunk, int]] = field(default_factory=list)
    """Index in `host`, name, tokens and line of kernel templates declared without a body."""
    device_lambdas: list[DeviceLambda] = field(default_factory=list)
    host_functions: set[str] = field(default_factory=set)
    host_templates: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Index in `device` and text of function templates of the host, by name."""
    left_out: set[str] = field(default_factory=set)
    host_tables: list[tuple[str, int]] = field(default_factory=list)
    optional: dict[int, reachable.Piece] = field(default_factory=dict)
    """Declarations of a whole program that device code may lack, by index in `device`."""
    host_only: re.Pattern[str] = _HOST_ONLY
    """Matches names that device code cannot use, such as torch's, including the text's own namespace aliases."""

    def emit(self, start: int, stop: int, device: str | None, host: str | None) -> None:
        """Emits tokens [start, stop) to both texts; None emits only their newlines."""
        first, last = self.tokens[start].start, self.tokens[stop - 1].end
        gap = blank(self.source[self.position : first])
        lines = blank(self.source[first:last])
        self.device += [gap, lines if device is None else device]
        self.host += [gap, lines if host is None else host]
        self.position = last

    def raw(self, start: int, stop: int) -> str:
        return self.source[self.tokens[start].start : self.tokens[stop - 1].end]


def split(
    source: str, whole: bool = False, macros: Mapping[str, str] | None = None, relocatable: bool = False
) -> Split:
    """Splits CUDA `source` into device and host text; `whole`: a file of a program instead of an extension.

    `relocatable`: its device code is linked with that of other files. `macros` are those of the command line and of
    headers, which conditionals may test. Raises `UnsupportedSource` for source that cannot be split.
    """
    known = {"__CUDACC__": "1", "__NVCC__": "1", **(macros or {})}
    source = without_dead_code(source)
    device = conditionals.resolved(source, {"__CUDA_ARCH__": _ARCH, **known})
    host = conditionals.resolved(source, known)
    parts = _split(device, whole, relocatable)
    if device == host:
        return parts
    other = _split(host, whole, relocatable)
    if parts.device_lambdas or other.device_lambdas:
        raise UnsupportedSource("a __device__ lambda beside a conditional within a declaration", 1)
    return replace(
        other,
        device=parts.device,
        device_for=parts.device_for,
        kernels=parts.kernels,
        device_words=parts.device_words,
    )


def _split(source: str, whole: bool, relocatable: bool) -> Split:
    source = expand_parameter_macros(expand_kernel_macros(source))
    tokens = tokenize(source)
    on_host = whole and HOST_ALGORITHMS.search(source) is not None
    state = _SplitState(source, tokens, HostText(source, tokens), whole=whole, on_host=on_host, relocatable=relocatable)
    _scope(state, 0, len(tokens))
    _emit_named_device_functions(state)
    _define_specialised(state)
    kernels = tuple(dict.fromkeys(state.kernels))
    device = _device_text(state)
    words = reachable.words_in(device)
    device = _device_includes(source, device)
    first, more = dispatch.guesses(source, tokens, state.text.callees, _templates(state), state.constants)
    device += _lambda_text(state)
    seen = (
        tuple(state.device_lambdas),
        frozenset(state.host_functions),
        frozenset(state.left_out),
        tuple(state.host_tables),
    )
    split_text = Split(device, "".join(state.host) + "\n", kernels, first, more, words, *seen)
    split_text.device_for = lambda expressions: _device_text(state, expressions) + _lambda_text(state)
    return split_text


def _device_text(state: _SplitState, expressions: str = "") -> str:
    """Returns the device text, without what neither device code nor `expressions` reach."""
    more = reachable.words_in(expressions + _lambda_text(state)) if state.whole else frozenset()
    return lambdas.without_annotations(reachable.kept(state.device, state.optional, more)) + "\n"


def _lambda_text(state: _SplitState) -> str:
    """Returns the device classes of the host code's device lambdas."""
    if not state.device_lambdas:
        return ""
    found = "".join(lambdas.device_text(one, state.source, state.tokens) for one in state.device_lambdas)
    return f'#include "{lambdas.HEADER}"\n{found}'


_TORCH_DEVICE = (
    # the header, the names in device code that call for it, and the includes without which they are the text's own
    ("kernelwright_accessor.h", r"\b\w*TensorAccessor\w*|\bPtrTraits\b", ""),
    ("kernelwright_loop.h", r"CUDA_KERNEL_LOOP", r"ATen/cuda/detail/KernelUtils\.h"),
    ("kernelwright_atomic.h", r"\bgpuAtomic(?:Add|AddNoReturn|Mul|Max|Min)\b|\bfast(?:Specialized)?AtomicAdd\b", ""),
    (
        "kernelwright_torch_device.h",
        r"\b(?:WARP_(?:SHFL\w*|SYNC|BALLOT)|ACTIVE_MASK|doLdg)\b|\bcuda\s*::\s*compat\b|\bcuda_utils\b",
        r"ATen/(?:native/)?cuda/\w+\.cuh|c10/cuda/CUDAMathCompat\.h",
    ),
    ("kernelwright_philox.h", r"\bPhiloxCudaState\b|\bphilox\s*::\s*unpack\b", ""),
)
"""torch's device code, of which our headers hold the parts that extensions use."""


def _device_includes(source: str, device: str) -> str:
    """Returns the device text with our headers for the names of torch's that it uses."""
    wanted = [
        header
        for header, names, includes in _TORCH_DEVICE
        if re.search(names, device) and (not includes or re.search(rf'#\s*include\s*[<"]{includes}', source))
    ]
    if not wanted:
        return device
    return "".join(f'#include "{header}"\n' for header in wanted) + '#line 1 "cuda.cu"\n' + device


def _scope(state: _SplitState, start: int, stop: int) -> None:
    k = start
    while k < stop:
        token = state.tokens[k]
        if token.kind == "directive":
            _directive(state, k)
            k += 1
        elif token.text == ";":
            state.emit(k, k + 1, ";", ";")
            k += 1
        elif token.text in _SCOPE_HEADS and (opening := _scope_opening(state.tokens, k, stop)) is not None:
            k = _nested(state, k, opening, stop)
        else:
            chunk = read_chunk(state.tokens, k, stop)
            _declaration(state, chunk)
            k = chunk.stop


def _scope_opening(tokens: list[Token], k: int, stop: int) -> int | None:
    """Returns the `{` of a namespace or linkage block that starts at `k`, or None."""
    if tokens[k].text == "extern":
        is_block = k + 2 < stop and tokens[k + 1].kind == "string" and tokens[k + 2].text == "{"
        return k + 2 if is_block else None
    if tokens[k].text == "inline" and (k + 1 >= stop or tokens[k + 1].text != "namespace"):
        return None
    while k < stop and tokens[k].text not in ("{", ";", "=", "("):
        k += 1
    return k if k < stop and tokens[k].text == "{" else None


def _nested(state: _SplitState, start: int, opening: int, stop: int) -> int:
    closing = matching(state.tokens, opening, stop)
    names = []
    if state.tokens[start].text != "extern":
        names = [t.text for t in state.tokens[start:opening] if t.kind == "word" and t.text not in _SCOPE_HEADS]
    text = state.raw(start, opening + 1)
    # NVRTC drops kernels with internal linkage, so only the host text keeps unnamed namespaces.
    unnamed = state.tokens[start].text != "extern" and not names
    state.emit(start, opening + 1, blank(text) if unnamed else text, text)
    state.scopes += names
    _scope(state, opening + 1, closing)
    del state.scopes[len(state.scopes) - len(names) :]
    state.emit(closing, closing + 1, None if unnamed else "}", "}")
    return closing + 1


def _directive(state: _SplitState, k: int) -> None:
    text = state.tokens[k].text
    plain = re.sub(r"\\\r?\n", " ", text)
    define = re.match(r"#\s*define\s+(\w+)(\(?)(.*)", plain, re.DOTALL)
    if define:
        name, is_function, body = define.groups()
        words = set(re.findall(r"\w+", body))
        if not is_function and words & ANNOTATIONS:
            state.qualifiers[name] = words & ANNOTATIONS
        state.constants.add(name)
    device: str | None = text
    if re.match(r"#\s*include\b", plain):
        device = text if _device_has(plain) else None
    elif re.match(r"#\s*pragma\s+once", plain):
        device = None
    host = None if state.whole and _OF_KERNELS.search(plain) else state.text.render(k, k + 1)
    state.emit(k, k + 1, device, host)
    if state.whole and define:
        piece = reachable.Piece(frozenset([define.group(1)]), reachable.words_in(define.group(3)), stays=True)
        state.optional[len(state.device) - 1] = piece


_OF_KERNELS = re.compile(
    r"#\s*include\s*[<\"](?:cooperative_groups/|cuda_(?:pipeline|awbarrier)\.h|cub/thread/"
    r"|cub/(?:block|warp)/\w+_(?:adjacent_difference|discontinuity|exchange|histogram|merge_sort|run_length_decode"
    r"|shuffle)\.cuh)"
)
"""Matches NVIDIA headers that only kernels use and that only nvcc can compile on the host side."""
_DEVICE_HEADERS = re.compile(
    r"[<\"](?:cuda_(?:fp16|bf16|fp8|fp4|fp6|pipeline|awbarrier)\w*\.h(?:pp)?|mma\.h|cooperative_groups.*|cub/(?!device/).*|cuda/.*"
    r"|math_constants\.h|helper_math\.h|cuComplex\.h|curand\w*\.h|c?(?:math|float|limits|stdint|stddef|assert)(?:\.h)?|type_traits|utility|tuple|array"
    r"|limits|numeric|initializer_list|ATen/(?:AccumulateType|OpMathType)\.h|c10/util/(?:Half|BFloat16|Float8_\w+)\.h)[>\"]"
)
"""Matches headers kept in device text; host headers and headers built into NVRTC are removed."""


def _device_has(directive: str) -> bool:
    return bool(_DEVICE_HEADERS.search(directive))


def _declaration(state: _SplitState, chunk: Chunk) -> None:
    words = set(chunk.words)
    for word in chunk.words:
        words |= state.qualifiers.get(word, set())
    raw = state.raw(chunk.start, chunk.stop)
    if "__global__" in words:
        _kernel(state, chunk)
    elif words & {"__device__", "__constant__", "__managed__"} and not chunk.is_type:
        _device_declaration(state, chunk, words, raw)
    else:
        _plain_declaration(state, chunk, words, raw)


def _device_declaration(state: _SplitState, chunk: Chunk, words: set[str], raw: str) -> None:
    if "__managed__" in words and not state.whole:
        raise UnsupportedSource("__managed__ variables", state.text.line(chunk.start))
    if not chunk.is_function:
        device = _without_static(raw).replace("__managed__", "__device__") if state.whole else raw
        state.emit(chunk.start, chunk.stop, device, _shadow(state, chunk, words))
        return
    if chunk.words[:1] == ["template"] and not chunk.template and chunk.name in state.host_templates:
        # A specialisation for the device needs its template there.
        place, text = state.host_templates.pop(chunk.name)
        state.device[place] = text
    if "__host__" in words or state.on_host:
        state.emit(chunk.start, chunk.stop, raw, state.text.render(chunk.start, chunk.stop))
    else:
        replace: dict[int, str] = {}
        if chunk.body is not None:
            _empty_body(state, chunk.body, chunk.stop - 1, replace)
        text = _render_without(state, chunk, replace)
        state.emit(chunk.start, chunk.stop, raw, None)
        state.device_functions.append((len(state.host) - 1, chunk.name, text))


def _shadow(state: _SplitState, chunk: Chunk, words: set[str]) -> str | None:
    """Returns the host's declaration of a device variable, of which only name and size matter."""
    raw = state.raw(chunk.start, chunk.stop)
    if _DEVICE_ONLY.search(raw) or ("extern" in words and not state.relocatable):
        return None
    text = state.text.render(chunk.start, chunk.stop)
    if state.whole:
        plain = _without_static(text)
        if "static" in words or not state.relocatable:  # as with nvcc, other files may have a variable of that name
            plain = f"static __attribute__((used)) {plain}"
        # The builder finds a managed variable by a kw_managed_ symbol; host code accesses its value directly.
        return _managed(plain, chunk.name) if "__managed__" in words else plain
    return text if words & {"static", "constexpr"} else "static " + text


def _without_static(text: str) -> str:
    """Removes `static` from a variable's declaration, so that it has the same symbol on both sides."""
    return re.sub(r"\bstatic\b", "", text, count=1)


def _managed(text: str, name: str) -> str:
    return f'{text} extern "C" const char kw_managed_{name} = 0;'


def _empty_body(state: _SplitState, opening: int, closing: int, replace: dict[int, str], body: str = "") -> None:
    """Replaces the tokens of `{...}` by `body` and the original newlines."""
    lines = blank(state.source[state.tokens[opening].start : state.tokens[closing].end])
    replace[opening] = "{ " + (body or "__builtin_trap();") + lines
    for k in range(opening + 1, closing):
        replace[k] = ""


def _render_without(state: _SplitState, chunk: Chunk, replace: dict[int, str]) -> str:
    """Renders a chunk for the host; removes emptied token ranges including blanks and comments between them."""
    out: list[str] = []
    k = chunk.start
    while k < chunk.stop:
        run = k
        while run < chunk.stop and replace.get(run) != "":
            run += 1
        out.append(state.text.render(k, run, replace))
        while run < chunk.stop and replace.get(run) == "":
            run += 1
        k = run
    return " ".join(out)


def _emit_named_device_functions(state: _SplitState) -> None:
    """Emits to the host, without bodies, device functions that host code names, such as template arguments."""
    if not state.device_functions:
        return
    named = set(re.findall(r"[A-Za-z_]\w*", "".join(state.host)))
    for place, name, text in state.device_functions:
        if name in named:
            state.host[place] = text


def _plain_declaration(state: _SplitState, chunk: Chunk, words: set[str], raw: str) -> None:
    both = chunk.is_type or "constexpr" in words or chunk.words[:1] in (["using"], ["typedef"], ["static_assert"])
    both |= chunk.words[:2] in (["template", "using"], ["template", "concept"])
    if chunk.is_function:
        state.host_functions.add(chunk.name)
        if chunk.template and chunk.body is not None and not state.host_only.search(raw) and "<<<" not in raw:
            state.host_templates[chunk.name] = (len(state.device) + 1, raw)
    if chunk.is_type and (member := lambdas.first(state.tokens, chunk.start, chunk.stop)):
        raise UnsupportedSource("a __device__ lambda in a member function", state.text.line(member))
    if chunk.is_function and not state.on_host:  # on_host lambdas belong to the host's algorithms
        for one in lambdas.find(state.source, state.tokens, chunk, state.scopes, len(state.device_lambdas)):
            state.device_lambdas.append(one)
            state.text.fixed |= lambdas.host_texts(one)
    is_constant = not chunk.is_function and ("const" in words or "constexpr" in words)
    host: str | None = _strip_members(state, chunk) if chunk.is_type else state.text.render(chunk.start, chunk.stop)
    if is_constant:
        state.constants.add(chunk.name)
        is_array = re.search(rf"\b{re.escape(chunk.name)}\s*\[", raw)
        if is_array and not re.search(r"__(?:device|constant|managed)__", raw):
            state.host_tables.append((chunk.name, state.text.line(chunk.start)))
    device: str | None = raw if both or is_constant else None
    if device is not None and chunk.is_type:
        reader = members.MemberReader(state.source, state.tokens, state.host_only, state.qualifiers)
        device = reader.device_text(chunk.start, chunk.stop, chunk.name, whole=state.whole)
    if device is not None and state.host_only.search(device) and "__device__" not in device:
        device = None
        if both:
            state.left_out.update(chunk.words)
    if state.on_host and re.search(r"\bthrust\b", raw) and "__global__" not in raw:
        device = None
    if re.match(r"using\s+namespace\s+(?:torch|at|c10|py|pybind11)\b", raw) or re.match(
        r"PYBIND11|TORCH_LIBRARY", chunk.name
    ):
        device = None
    if re.match(r"namespace\s+\w+\s*=", raw):
        device = None if re.search(r"=\s*(?:::)?\s*(?:torch|at|c10|pybind11|std)\b", raw) else raw
        if device is None and not re.search(r"=\s*(?:::)?\s*std\b", raw):
            state.host_only = re.compile(rf"{state.host_only.pattern}|\b{chunk.words[1]}\s*::")
        host = None if re.search(r"=\s*(?:::)?\s*cuda\s*::", raw) else host
    elif re.match(r"using\b", raw) and _DEVICE_ONLY.search(raw):
        host = None
    elif (named := re.fullmatch(r"using\s+std\s*::\s*(\w+)\s*;", raw)) and not device_std.has(named[1]):
        device = None
    state.emit(chunk.start, chunk.stop, device, host)
    if state.whole and device is not None and not re.match(r"using\s+namespace\b", raw):
        names = reachable.declared_names(state.tokens, chunk)
        state.optional[len(state.device) - 1] = reachable.Piece(names, reachable.words_in(device))


def _strip_members(state: _SplitState, chunk: Chunk) -> str:
    """Renders a class for the host; device-only member functions lose their bodies."""
    replace: dict[int, str] = {}
    k = chunk.stop if state.on_host else chunk.start
    while k < chunk.stop:
        if state.tokens[k].text == "__device__" or "__device__" in state.qualifiers.get(state.tokens[k].text, ()):
            k = _strip_member(state, chunk, k, replace)
        k += 1
    return _render_without(state, chunk, replace)


def _strip_member(state: _SplitState, chunk: Chunk, k: int, replace: dict[int, str]) -> int:
    first = k
    while first > chunk.start and state.tokens[first - 1].text not in (";", "{", "}", ":"):
        first -= 1
    stop, parens = k, False
    while stop < chunk.stop and state.tokens[stop].text not in (";", "{"):
        if state.tokens[stop].text == "(":
            parens = True
            stop = matching(state.tokens, stop, chunk.stop)
        stop += 1
    words: set[str] = set()
    for token in state.tokens[first:stop]:
        words |= {token.text} | state.qualifiers.get(token.text, set())
    if stop >= chunk.stop or state.tokens[stop].text != "{" or not parens or "__host__" in words:
        return stop
    closing = matching(state.tokens, stop, chunk.stop)
    _empty_body(state, stop, closing, replace)
    return closing


def _kernel(state: _SplitState, chunk: Chunk) -> None:
    line = state.text.line(chunk.start)
    if chunk.parens is None or not chunk.name:
        raise UnsupportedSource("a __global__ function that is put together by a macro", line)
    raw = state.raw(chunk.start, chunk.stop)
    device = _external(state, chunk, raw)
    if chunk.words[:1] == ["template"] and not chunk.template:
        state.emit(chunk.start, chunk.stop, device, _specialisation(state, chunk, line))
        return
    qualified = "::".join([*state.scopes, chunk.name])
    state.kernels.append(KernelText(qualified, bool(chunk.template), line))
    state.templates.setdefault(qualified, chunk.template)
    found = parameters(state.tokens, chunk.parens, chunk.stop)
    if chunk.body is None:
        state.emit(chunk.start, chunk.stop, device, _kernel_head(state, chunk, {}))
        if chunk.template:
            state.declared.append((len(state.host) - 1, qualified, chunk, line))
        return
    state.defined.add(qualified)
    replace = _named(state, found)
    _empty_body(state, chunk.body, chunk.stop - 1, replace, _any_stub(state, qualified, chunk.template, found, line))
    state.emit(chunk.start, chunk.stop, device, _kernel_head(state, chunk, replace))


def _specialisation(state: _SplitState, chunk: Chunk, line: int) -> str | None:
    """Returns the host text of a specialisation, with a stub of its own; as with nvcc, it must precede its first use.
    Returns None for an explicit instantiation. If not all template arguments are written out, the template's stub
    serves the specialisation (`_define_specialised`)."""
    if state.tokens[chunk.start + 1].text != "<":
        return None
    name = "::".join([*state.scopes, *scopes_named(state.tokens, chunk), chunk.name])
    template, arguments = state.templates.get(name, []), template_arguments(state.tokens, chunk)
    if len(template) != len(arguments) or any(one.pack for one in template):
        state.specialised.add(name)
    state.specialisations.append((len(state.host) + 1, name))
    found = parameters(state.tokens, chunk.parens or chunk.start, chunk.stop)
    written = [TemplateParameter(one.kind, text) for one, text in zip(template, arguments, strict=False)]
    replace = _named(state, found)
    if chunk.body is not None:
        _empty_body(state, chunk.body, chunk.stop - 1, replace, _any_stub(state, name, written, found, line))
    return _kernel_head(state, chunk, replace)


def _named(state: _SplitState, found: list[FunctionParameter]) -> dict[int, str]:
    """Names unnamed parameters; returns the replacements by token index."""
    replace: dict[int, str] = {}
    for number, parameter in enumerate(found):
        if not parameter.name:
            parameter.name = f"kw_a{number}"
            replace[parameter.last] = state.tokens[parameter.last].text + " " + parameter.name
    return replace


def _any_stub(
    state: _SplitState, name: str, template: list[TemplateParameter], found: list[FunctionParameter], line: int
) -> str:
    return stubs.program_stub(found) if state.whole else stubs.extension_stub(name, template, found, line)


def _kernel_head(state: _SplitState, chunk: Chunk, replace: dict[int, str]) -> str:
    return _render_without(state, chunk, replace)


def _define_specialised(state: _SplitState) -> None:
    """Removes specialisations that the template's stub serves, and adds that stub to templates without a body."""
    for place, name in state.specialisations:
        if name in state.specialised:
            state.host[place] = blank(state.host[place])
    for place, name, chunk, line in state.declared:
        if name in state.specialised - state.defined:
            found = parameters(state.tokens, chunk.parens or chunk.start, chunk.stop)
            replace = _named(state, found)
            replace[chunk.stop - 1] = "{ " + _any_stub(state, name, chunk.template, found, line) + " }"
            state.host[place] = _kernel_head(state, chunk, replace)
            state.defined.add(name)


def _external(state: _SplitState, chunk: Chunk, raw: str) -> str:
    """Returns the kernel's device text without `static`: NVRTC drops unreferenced kernels of internal linkage."""
    head = state.source[state.tokens[chunk.start].start : state.tokens[chunk.parens or chunk.start].start]
    return re.sub(r"\bstatic\b", "", head) + raw[len(head) :]


def _templates(state: _SplitState) -> dict[str, str]:
    """Returns kernel templates: qualified names by last name."""
    return {kernel.name.split("::")[-1]: kernel.name for kernel in state.kernels if kernel.template}
