"""The base of all records: frozen, validated, named by its content."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator


def _sound(value: Any) -> Any:
    """Returns the value with every text in it encodable as UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    elif isinstance(value, dict):
        return {_sound(k): _sound(v) for k, v in value.items()}
    elif isinstance(value, (list, tuple)):
        return [_sound(v) for v in value]
    return value


class Record(BaseModel):
    """The base of all records: frozen, no unknown fields, identity by content."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", allow_inf_nan=True)

    @model_validator(mode="before")
    @classmethod
    def _sound_text(cls, data: Any) -> Any:
        """Replaces lone surrogates, which JSON can spell and no file can hold, by `?`: every record can be stored."""
        return _sound(data)

    def plain(self) -> dict[str, Any]:
        """Returns this record as JSON values; infinities and NaN are the strings `Infinity`, `-Infinity`, `NaN`."""
        value: dict[str, Any] = json.loads(self.model_dump_json())
        return value

    def canonical_json(self) -> str:
        """Returns this record as JSON with sorted keys and no spare blanks: the text that `content_hash` hashes."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()

    def changed(self, **fields: Any) -> Self:
        """Returns a copy with other values in some fields, validated and hashed again."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **fields})

    @property
    def short_hash(self) -> str:
        """The first 12 digits of `content_hash`: enough to name a record in a table."""
        return self.content_hash[:12]
