"""Writes the bodies of kernels' host functions, which pass the arguments to the runner or to a program's runtime."""

from __future__ import annotations

from kernelwright.backends.source_text.declarations import FunctionParameter, TemplateParameter
from kernelwright.backends.source_text.launches import UnsupportedSource

_ADDED = {"type": "type", "value": "constant", "template": "of_types"}
"""The stub's method for each kind of template argument."""


def extension_stub(name: str, template: list[TemplateParameter], found: list[FunctionParameter], line: int) -> str:
    """Returns the host stub's body, which passes the kernel's name, arguments and their sizes to the runner."""
    calls = ""
    for k, parameter in enumerate(template):
        if not parameter.name and all(later.default for later in template[k:]):
            break  # constraints (`typename = enable_if_t<...>`) take no arguments
        if not parameter.name or parameter.kind == "other":
            raise UnsupportedSource("a kernel template with an unnamed or template parameter", line)
        call = f"kw_e.{_ADDED[parameter.kind]}<{parameter.name}>()"
        calls += f"({call}, ...); " if parameter.pack else f"{call}; "
    setup = f'::kw::Expression kw_e("{name}"); {calls}' if template else ""
    what = f'"{name}", kw_e' if template else f'"{name}"'
    if not found:
        return f"{setup}::kw::launch({what}, nullptr, nullptr, 0);"
    return f"{setup}{_arguments(found)}::kw::launch({what}, kw_p, kw_n, sizeof(kw_n) / sizeof(unsigned));"


def _arguments(found: list[FunctionParameter]) -> str:
    more = ["..." if p.pack else "" for p in found]
    # A reference's own value is an address, which needs a place of its own.
    places = {p.name: f"kw_r_{p.name}" for p in found if p.reference and not p.pack}
    setup = "".join(f"auto* {place} = __builtin_addressof({name}); " for name, place in places.items())
    values = [places.get(p.name, p.name) for p in found]
    addresses = ", ".join(f"(const void*)__builtin_addressof({v}){m}" for v, m in zip(values, more, strict=True))
    sizes = ", ".join(f"(unsigned)sizeof({v}){m}" for v, m in zip(values, more, strict=True))
    return f"{setup}const void* kw_p[] = {{{addresses}}}; const unsigned kw_n[] = {{{sizes}}}; "


def program_stub(found: list[FunctionParameter]) -> str:
    """Returns the stub's body in a whole program, where a variable's address identifies the kernel or instance."""
    identity = "static char kw_id; "
    if not found:
        return f"{identity}::kw::launch(&kw_id, nullptr, nullptr, 0);"
    return f"{identity}{_arguments(found)}::kw::launch(&kw_id, kw_p, kw_n, sizeof(kw_n) / sizeof(unsigned));"
