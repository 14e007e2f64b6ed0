"""Where things are kept, and how settings are read: a file with dotted overrides, into a pydantic model.

Nothing is written outside the cache folder and a run folder. Which settings there are is the business of each job.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kernelwright.errors import ConfigError
from kernelwright.syntax import repeated_key

if TYPE_CHECKING:
    import yaml

Model = TypeVar("Model", bound=BaseModel)


def number_of_environment(name: str, least: float, most: float, whole: bool = False) -> float | None:
    """The number that a variable holds, None where it is unset or empty. Raises `ConfigError` for anything else than a
    number (a whole one) in this range."""
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
    """The cache folder, made if need be: $KERNELWRIGHT_CACHE, else $XDG_CACHE_HOME/kernelwright, else ~/.cache."""
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
    """Settings from a file (None: the model's defaults), changed by `overrides` such as `optimizer.lr=3e-4`.

    The file is TOML, or YAML where its name ends so.
    An override's value is read as TOML, or taken as text where the field is text or it is no TOML; `null` empties a
    setting that may be empty. A key of a dict is set by its dotted name, too. Another `X.name` takes the file's
    `X.parameters` out, for they belong to the name of before. Raises `ConfigError` that names the setting: unknown ones
    with their near matches, missing ones, and values out of range.
    """
    settings = _read(Path(path)) if path is not None else {}
    where = repr(str(path)) if path is not None else "the settings"
    _check_known(settings, model, where, "")
    for override in overrides:  # all of them first, so that parameters given beside the new name stay
        _drop_parameters(settings, override, model)
    for override in overrides:
        _override(settings, override, model)
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise _invalid(error, where, {o.partition("=")[0].strip() for o in overrides}) from error


def dump_config(config: BaseModel) -> str:
    """Settings as TOML that `load_config` reads back; settings that are None are left out, as TOML has no null."""
    return "\n".join(_toml_lines(config.model_dump(mode="json"), "")).strip() + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
        return _yaml(text, path) if path.suffix in (".yaml", ".yml") else tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{str(path)!r} is not UTF-8 text (byte {error.start})", hint="convert it to UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
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
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"{str(path)!r} is not YAML: {why}", hint="write name: value; mend that place") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(f"{str(path)!r} holds no settings", hint="write name: value")
    return {str(name): value for name, value in settings.items()}


def _refuse_repeated(root: yaml.Node | None, path: Path) -> None:
    """Refuses a key that a mapping has twice: YAML's reader would take the last one and say nothing. What a merge
    (`<<`) brings may be given once more, for that is what it is for."""
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
    """The type of a setting; raises `ConfigError` when there is none of that name."""
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
    """The model behind `Inner` and `Inner | None`, None for other types."""
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def _choices(annotation: Any) -> set[Any]:
    """The members of a union, or the type itself."""
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
    """The table that the last of these names stands for, made where there is none."""
    if settings.get(path[-1]) is None:
        settings[path[-1]] = {}
    if not isinstance(settings[path[-1]], dict):
        name = ".".join(path)
        raise ConfigError(f"override: {name!r} is not a table in the file", hint=f"give {name} as a whole")
    return cast("dict[str, Any]", settings[path[-1]])


def _inside(annotation: Any, above: list[str], part: str) -> Any:
    """The type of a setting in a table, or of any key in a dict; raises `ConfigError` where it is neither."""
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
    """What belongs to the name that an override replaces: a table's `parameters`, or what its model calls `OF_NAME`."""
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
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _invalid(error: ValidationError, where: str, overridden: set[str]) -> ConfigError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return ConfigError(f"{where}: the setting {name!r} is required", hint=f"add it, or give {name}=VALUE")
    reason = first["msg"].removeprefix("Value error, ")
    if isinstance(first["input"], (dict, BaseModel)):  # of settings that do not go together: not all are repeated
        hint = f"change one of them in the file, or give {name + '.' if name else ''}NAME=VALUE"
        return ConfigError(f"{where}: {name + ': ' if name else ''}{reason}", hint=hint)
    if name in overridden:  # what the file says of it is not at fault
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
