"""The cache folder, and the reader of settings: a file with dotted overrides, into a pydantic model.

Kernelwright writes only into the cache folder and into run folders. Each job defines its own settings.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kernelwright.errors import ConfigError
from kernelwright.syntax import repeated_key, toml_table

if TYPE_CHECKING:
    import yaml

Model = TypeVar("Model", bound=BaseModel)


def number_of_environment(name: str, least: float, most: float, whole: bool = False) -> float | None:
    """Returns the number in an environment variable; None where it is unset or empty.

    Raises `ConfigError` unless the value is a number (with `whole` an integer) from `least` to `most`.
    """
    text = os.environ.get(name)
    if not text:
        return None
    hint = f"use {'a whole number' if whole else 'a number'} from {least:.10g} to {most:.10g}, or unset it"
    try:
        value = int(text) if whole else float(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} is not {'a whole' if whole else 'a'} number", hint=hint) from error
    if not least <= value <= most:
        raise ConfigError(f"{name}={text!r} is out of range", hint=hint)
    return value


def cache_dir() -> Path:
    """Returns the cache folder: $KERNELWRIGHT_CACHE, else $XDG_CACHE_HOME/kernelwright, else ~/.cache/kernelwright.

    Creates it where it does not exist. Raises `ConfigError` where it cannot be created or written to.
    """
    named = os.environ.get("KERNELWRIGHT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        path = Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "kernelwright"
    except RuntimeError as error:  # no HOME, and the user is not in the password file
        raise ConfigError(
            "there is no home folder for the cache", hint="set KERNELWRIGHT_CACHE to a folder that you may write to"
        ) from error
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        raise ConfigError(
            f"the cache folder {str(path)!r} cannot be used: {error.strerror}",
            hint="set KERNELWRIGHT_CACHE to a folder that you may write to",
        ) from error
    return path.resolve()


def load_config(path: Path | str | None, overrides: Sequence[str], model: type[Model]) -> Model:
    """Reads settings from a file (None: the model's defaults), changed by `overrides` such as `optimizer.lr=3e-4`.

    The file is YAML if its name ends in .yaml or .yml, else TOML. An override's value is read as TOML, or as text where
    the field is text or the value is not TOML; `null` empties an optional setting. A dotted name also sets a key of a
    dict. An override of `X.name` removes the file's `X.parameters`, which belong to the replaced name.

    Raises `ConfigError` that names the setting: an unknown one with its near matches, a missing one, or a value out of
    range.
    """
    settings = _read(Path(path)) if path is not None else {}
    where = repr(str(path)) if path is not None else "the settings"
    _check_known(settings, model, where, "")
    for override in overrides:  # all of them first: parameters given with the new name must stay
        _drop_parameters(settings, override, model)
    for override in overrides:
        _override(settings, override, model)
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise _invalid(error, where, {o.partition("=")[0].strip() for o in overrides}) from error


def dump_config(config: BaseModel) -> str:
    """Returns settings as TOML that `load_config` reads back. It omits settings that are None: TOML has no null."""
    return "\n".join(_toml_lines(config.model_dump(mode="json"), "")).strip() + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
        return _yaml(text, path) if path.suffix in (".yaml", ".yml") else toml_table(text)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{str(path)!r} is not UTF-8 text (byte {error.start})", hint="convert it to UTF-8"
        ) from error
    except ValueError as error:
        hint = "write name = value, with text in quotes; or name it .yaml where it is YAML"
        raise ConfigError(f"{str(path)!r} is not TOML: {error}", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}", hint="check the path") from error


def _yaml(text: str, path: Path) -> dict[str, Any]:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _refuse_repeated(node, path)
        settings = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number or a date
        why = " ".join(str(error).split())
        raise ConfigError(f"{str(path)!r} is not YAML: {why}", hint="write name: value; mend that place") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(f"{str(path)!r} holds no settings", hint="write name: value")
    return {str(name): value for name, value in settings.items()}


def _refuse_repeated(root: yaml.Node | None, path: Path) -> None:
    """Raises `ConfigError` for a key that a mapping has twice: the YAML reader would silently take the last one. A key
    that a merge (`<<`) brings may be given again."""
    import yaml

    nodes: list[Any] = [root]
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:  # an alias stands for the same node
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            nodes += [part for pair in node.value for part in pair]
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge")]
            if (twice := repeated_key((key.value, key) for key in keys)) is not None:
                line = [key.start_mark.line for key in keys if key.value == twice][1] + 1
                raise ConfigError(
                    f"{str(path)!r}: the key {twice!r} stands there twice, in line {line} again",
                    hint="leave one of the two",
                )


def _check_known(settings: dict[str, Any], model: type[BaseModel], where: str, prefix: str) -> None:
    for key, value in settings.items():
        inner = _table(_field(model, key, where, prefix))
        if inner is not None and isinstance(value, dict):
            _check_known(value, inner, where, f"{prefix}{key}.")


def _field(model: type[BaseModel], key: str, where: str, prefix: str) -> Any:
    """Returns the type of a setting. Raises `ConfigError` for an unknown name."""
    if key in model.model_fields:
        return model.model_fields[key].annotation
    near = difflib.get_close_matches(key, model.model_fields, 3)
    raise ConfigError(
        f"{where}: unknown setting {prefix + key!r}",
        hint=f"did you mean {' or '.join(repr(prefix + n) for n in near)}?"
        if near
        else f"settings here are: {', '.join(model.model_fields)}",
    )


def _table(annotation: Any) -> type[BaseModel] | None:
    """Returns the model of `Inner` and `Inner | None`; None for other types."""
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def _choices(annotation: Any) -> set[Any]:
    """Returns the members of a union, or the type itself."""
    return set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}


def _override(settings: dict[str, Any], override: str, model: type[BaseModel]) -> None:
    name, equals, text = override.partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{override!r} is no setting", hint="write name=value, or table.name=value")
    annotation: Any = model
    for number, part in enumerate(parts):
        annotation = _inside(annotation, parts[:number], part)
        if number:
            settings = _descend(settings, parts[:number])
    settings[parts[-1]] = _value(text.strip(), annotation)


def _descend(settings: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Returns the table that the last of these names stands for; creates a missing one."""
    if settings.get(path[-1]) is None:
        settings[path[-1]] = {}
    if not isinstance(settings[path[-1]], dict):
        name = ".".join(path)
        raise ConfigError(f"override: {name!r} is not a table in the file", hint=f"give {name} as a whole")
    return cast("dict[str, Any]", settings[path[-1]])


def _inside(annotation: Any, above: list[str], part: str) -> Any:
    """Returns the type of a setting in a table, or of a key in a dict. Raises `ConfigError` for any other type."""
    table, name = _table(annotation), ".".join(above)
    if table is not None:
        return _field(table, part, "override", f"{name}." if name else "")
    if annotation is Any:  # a table within a dict of anything
        return Any
    for choice in _choices(annotation):
        if get_origin(choice) is dict:
            return get_args(choice)[1]
    raise ConfigError(f"override: {name!r} is a single setting, not a table of them", hint=f"give {name}=VALUE")


def _drop_parameters(settings: dict[str, Any], override: str, model: type[BaseModel]) -> None:
    """Removes the settings that belong to the name which an override replaces: `parameters`, or the model's
    `OF_NAME`."""
    name, _, text = override.partition("=")
    *above, last = name.strip().split(".")
    table, kind = settings, model
    for part in above:
        inner, field = table.get(part), kind.model_fields.get(part)
        kinds = (
            [k for k in _choices(field.annotation) if isinstance(k, type) and issubclass(k, BaseModel)] if field else []
        )
        if not isinstance(inner, dict) or not kinds:
            return
        table, kind = inner, kinds[0]
    if above and last == "name" and table.get("name") != text.strip().strip("\"'"):
        for key in getattr(kind, "OF_NAME", ("parameters",)):
            table.pop(key, None)


def _value(text: str, annotation: Any) -> Any:
    choices = _choices(annotation)
    if text in ("none", "null") and choices & {type(None), Any}:
        return None
    if choices - {type(None)} == {str} and not text.startswith(('"', "'")):
        return text
    try:
        return toml_table(f"value = {text}")["value"]
    except ValueError:
        return text


def _invalid(error: ValidationError, where: str, overridden: set[str]) -> ConfigError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return ConfigError(f"{where}: the setting {name!r} is required", hint=f"add it, or give {name}=VALUE")
    reason = first["msg"].removeprefix("Value error, ")
    if isinstance(first["input"], (dict, BaseModel)):  # settings that contradict each other: too long to repeat
        hint = f"change one of them in the file, or give {name + '.' if name else ''}NAME=VALUE"
        return ConfigError(f"{where}: {name + ': ' if name else ''}{reason}", hint=hint)
    if name in overridden:  # the fault is in the override, not in the file
        return ConfigError(f"override: {name} = {first['input']!r}: {reason}", hint=f"give another {name}=VALUE")
    hint = f"change it in the file, or give {name}=VALUE"
    return ConfigError(f"{where}: {name} = {first['input']!r}: {reason}", hint=hint)


def _toml_lines(table: dict[str, Any], prefix: str) -> list[str]:
    lines = [f"{_toml_key(k)} = {_toml(v)}" for k, v in table.items() if v is not None and not isinstance(v, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            name = prefix + _toml_key(key)
            lines += ["", f"[{name}]", *_toml_lines(value, f"{name}.")]
    return lines


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants DEL escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value if v is not None) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items() if v is not None) + "}"
    return repr(value)
