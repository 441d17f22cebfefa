"""From declared parameters to one clear line per problem.

A component's parameters are read from its declaration (a validated dataclass or a function's signature); every value
that does not fit gives one line with its key, its value and what is allowed, and a key that does not exist is answered
with the nearest one that does.
"""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import Signature, signature
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from ecgr.tables import shown

GIVEN_BY_DATA = frozenset({"channels", "classes", "features", "outputs", "vocabulary", "length"})
"""A model's arguments that come from the data set, not from the config."""

ANYTHING = ConfigDict(strict=True, arbitrary_types_allowed=True)
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_LIST_NAMES = {int: "whole numbers", float: "numbers", str: "texts"}
_BOUNDS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))


def parameters_of(component: Callable[..., Any]) -> Mapping[str, FieldInfo]:
    """The parameters that a table entry takes from a config.

    >>> from ecgr.tasks.models import cnn
    >>> list(parameters_of(cnn))
    ['width', 'norm']
    """
    return _model_of(component).model_fields


@cache
def _model_of(component: Callable[..., Any]) -> type[BaseModel]:
    """The parameters as a pydantic model; made once for each component, for it takes as long as a small config."""
    declared = getattr(component, "__pydantic_fields__", None)
    fields: Any = (
        {name: (field.annotation, field) for name, field in declared.items() if field.init is not False}
        if declared is not None
        else {
            name: (
                Any if parameter.annotation is parameter.empty else parameter.annotation,
                ... if parameter.default is parameter.empty else parameter.default,
            )
            for name, parameter in _signature(component).parameters.items()
            if name not in GIVEN_BY_DATA
            and not name.startswith("_")  # pydantic takes none of these
            and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        }
    )
    try:
        made: type[BaseModel] = create_model("Parameters", __config__=ANYTHING, **fields)
    except Exception:  # a user's annotation that pydantic cannot check, as a protocol
        unchecked: Any = {name: (Any, default) for name, (_, default) in fields.items()}
        loose: type[BaseModel] = create_model("Parameters", __config__=ANYTHING, **unchecked)
        return loose
    return made


def _signature(component: Callable[..., Any]) -> Signature:
    """With its annotations as types; without them where Python cannot make types of them; else no parameters."""
    try:
        return signature(component, eval_str=True)
    except Exception:
        try:
            bare = signature(component)
        except (ValueError, TypeError):  # of a class that is built in, as int
            return Signature()
        unannotated = [each.replace(annotation=each.empty) for each in bare.parameters.values()]
        return bare.replace(parameters=unannotated)


def validate(component: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """All of a component's parameters, given or default, in their declared types: 1 becomes 1.0 where it is a float."""
    return _model_of(component)(**values).model_dump()


def problems_with(path: str, component: Callable[..., Any], values: Mapping[str, Any]) -> list[str]:
    """One line for every value that does not fit ``component``'s parameters; unknown keys are not looked at."""
    fields = parameters_of(component)
    known = {name: value for name, value in values.items() if name in fields}
    try:
        validate(component, known)
    except ValidationError as error:
        wrong = dict.fromkeys(str(detail["loc"][0]) for detail in error.errors())
        return [_problem(f"{path}.{name}", known.get(name), fields[name]) for name in wrong]
    return []


def _problem(path: str, value: Any, field: FieldInfo) -> str:
    if value is None:
        return f"{path}: missing; give {describe(field)}"
    return f"{path}: {shown(value)} does not fit; give {describe(field)}"


def describe(field: FieldInfo) -> str:
    """What a field allows, in words.

    >>> from ecgr.core.regulators import ECGR
    >>> describe(parameters_of(ECGR)["beta"])
    'a number, at least 0, at most 1'
    >>> from ecgr.tasks.models import mlp
    >>> describe(parameters_of(mlp)["hidden"])
    'a list of whole numbers, at least 1'
    """
    annotation: Any = field.annotation
    either = get_args(annotation) if type(None) in get_args(annotation) else [annotation]
    options = [option for option in either if option is not type(None)]
    words, metadata = [], list(field.metadata)

    def bare(option: Any) -> Any:
        """A type without its bounds, which are set aside."""
        if not hasattr(option, "__metadata__"):
            return option
        metadata.extend(bound for entry in option.__metadata__ for bound in getattr(entry, "metadata", [entry]))
        return get_args(option)[0]

    for option in options:
        inner = bare(option)
        if get_origin(inner) is tuple:
            words.append(f"a list of {_LIST_NAMES[bare(get_args(inner)[0])]}")
        elif get_origin(inner) is Literal:
            words.append("one of: " + ", ".join(str(choice).lower() for choice in get_args(inner)))
        else:
            words.append(_TYPE_NAMES.get(inner, str(inner)))
    for attribute, phrase in _BOUNDS:
        words += [f"{phrase} {getattr(m, attribute)}" for m in metadata if getattr(m, attribute, None) is not None]
    words += [
        "only letters, digits, '.', '_' and '-', starting with a letter or digit, at most 64 of them, no device's name"
        for m in metadata
        if getattr(m, "pattern", None)
    ]
    return ", ".join(words)
