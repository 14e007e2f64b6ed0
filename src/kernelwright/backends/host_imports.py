"""Lists the symbols that compiled host code takes from other libraries, and which of them it may take.

Host code of a C++ candidate works on values in a process that also holds torch. Whatever it can name, it can call: BLAS
in torch's libraries by `dlsym`, for one. It may name the stand-in, the C++ and the mathematical library, and the part
of the C library that works on memory, text and threads of its own.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_OWN_VERSIONS = re.compile(r"^(?:GLIBCXX|CXXABI|GCC|GOMP|GOACC|OMP|OACC)_")
"""Matches the symbol versions of the C++ library, the compiler's library and OpenMP."""
_OF_THE_C_LIBRARY = re.compile(
    r"^(?:_?_?(?:mem|str|wcs|wmem|is|to)[a-z]\w*|(?:__)?v?[sf]?n?w?printf(?:_chk)?|f?puts|f?putc|putchar|fwrite|fflush|fputc"
    r"|malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign|qsort|bsearch|abs|labs|llabs|l?l?div"
    r"|s?rand(?:_r|om)?|drand48|time|clock|clock_gettime|gettimeofday|nanosleep|usleep|sched_yield|get_nprocs|sysconf"
    r"|pthread_\w+|sem_(?:init|wait|post|destroy)|__cxa_\w+|__gmon_start__|_ITM_\w+|__stack_chk_fail|__assert_fail|abort"
    r"|exit|_exit|__errno_location|__tls_get_addr|setjmp|_setjmp|longjmp|__longjmp_chk|stdout|stderr|getenv|secure_getenv"
    r"|a?to[filq]\w*|strto\w+|setlocale|localeconv|__ctype_\w+|__isoc\d+_\w+|atexit|__register_atfork|__fprintf_chk"
    r"|__printf_chk|__(?:mem|str)\w+_chk|__vsnprintf_chk|__snprintf_chk|__sprintf_chk)$"
)
_LOADERS = frozenset("strsignal memfd_create".split())
"""Names of that form that reach further."""
_MATHS = ("libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libgomp.so.1")


def foreign_imports(library: Path, host: Path) -> list[str]:
    """Returns the symbols that `library` takes from elsewhere and may not; `host` is the stand-in's library.

    Raises ValueError for a file that is no shared object.
    """
    try:
        with open(library, "rb") as file:
            wanted = _symbols(ELFFile(file), defined=False)
    except (ELFError, OSError, KeyError, AssertionError) as error:
        raise ValueError(f"{library.name} is no shared object: {error}") from error
    known = _exported(host) | frozenset[str]().union(*(_exported(p) for p in map(_found, _MATHS) if p is not None))
    return sorted(name for name, version in wanted if not _allowed(name, version, known))


def _allowed(name: str, version: str, known: frozenset[str]) -> bool:
    if name in known or _OWN_VERSIONS.match(version):
        return True
    return name not in _LOADERS and _OF_THE_C_LIBRARY.match(name) is not None


@cache
def _exported(library: Path) -> frozenset[str]:
    with open(library, "rb") as file:
        return frozenset(name for name, _ in _symbols(ELFFile(file), defined=True))


def _symbols(elf: ELFFile, defined: bool) -> list[tuple[str, str]]:
    """Returns name and version of the dynamic symbols that an object defines, or that it lacks."""
    table = elf.get_section_by_name(".dynsym")
    if table is None:
        return []
    versions, needs = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".gnu.version_r")
    found = []
    for index, symbol in enumerate(table.iter_symbols()):  # type: ignore[attr-defined]
        if symbol.name and (symbol["st_shndx"] != "SHN_UNDEF") == defined:
            found.append((symbol.name, "" if defined else _version(index, versions, needs)))
    return found


def _version(index: int, versions: object, needs: object) -> str:
    if versions is None or needs is None:
        return ""
    number = versions.get_symbol(index)["ndx"]  # type: ignore[attr-defined]
    if not isinstance(number, int):
        return ""
    found = needs.get_version(number)  # type: ignore[attr-defined]
    return str(found[1].name) if found is not None else ""


@cache
def _found(name: str) -> Path | None:
    machine = f"{platform.machine()}-linux-gnu"
    folders = (f"/lib/{machine}", f"/usr/lib/{machine}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    return next((Path(folder, name) for folder in folders if Path(folder, name).exists()), None)
