"""JSON as dataclasses: every value has the type that its field is annotated with, and no key is missing or unknown."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

# Metadata of a field that older files do not have: it may be missing, and is left out at its default, so that what
# could be written before keeps its bytes.
LATER = {"later": True}


def later_fields(of: Any) -> list[Field[Any]]:
    return [one for one in fields(of) if one.metadata.get("later")]


def at_default(of: Any) -> list[str]:
    """The later fields that say nothing."""
    return [one.name for one in later_fields(of) if getattr(of, one.name) == _default(one)]


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def typed(kind: Any, value: Any, where: str = "") -> Any:
    """The value as its annotated type says: dataclasses are built from objects. Raises ValueError naming the place."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if isinstance(value, dict):
            value = {one.name: _default(one) for one in later_fields(kind)} | value
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{where or 'it'} does not have the keys {', '.join(hints)}")
        return kind(**{name: typed(hint, value[name], f"{where}.{name}".lstrip(".")) for name, hint in hints.items()})
    if origin is list and isinstance(value, list):
        return [typed(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is UnionType:
        return None if value is None else typed(arguments[0], value, where)
    if kind is Any or (origin is Literal and value in arguments) or type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r}, not {getattr(kind, '__name__', kind)}")
