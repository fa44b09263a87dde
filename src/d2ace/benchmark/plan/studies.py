"""Ablations and sweeps: the same method with one thing changed at a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace.selectors import SELECTORS, options_of

from .specs import canonical


@dataclass(frozen=True)
class Method:
    """A selector with options, under the label that tables show; None: made from the options."""

    selector: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None


def comparison() -> list[Method]:
    """Every method of the library, each with the options with which it is compared."""
    return [Method(name, dict(method.compared)) for name, method in SELECTORS.items()]


ABLATION: dict[str, tuple[str, dict[str, Any]]] = {
    "A": ("full", {}),
    "B": ("hardness only", {"mix": [0, 0]}),
    "C": ("uncertainty only", {"mix": [1, 1]}),
    "D": ("fixed mixing 0.3", {"mix": [0.3, 0.3]}),
    "E": ("fixed mixing 0.5", {"mix": [0.5, 0.5]}),
    "F": ("fixed mixing 0.7", {"mix": [0.7, 0.7]}),
    "G": ("no label weights", {"label_weight": "none"}),
    "H": ("no correlation", {"correlation": "none"}),
    "I": ("linear label weights", {"label_weight": "linear"}),
    "J": ("exponential instance weights", {"weight_transform": "exp"}),
    "K": ("exponential mixing schedule", {"mix_schedule": "exp"}),
}
"""Variant -> what it is, and what it changes of D2ACE."""


@dataclass(frozen=True)
class Symbol:
    """What the paper calls an option: as one types it, as one prints it, and in words."""

    typed: str
    printed: str
    words: str

    @property
    def title(self) -> str:
        """Words and symbol, for an axis."""
        return f"{self.words} {self.printed}"


SYMBOLS = {
    "neighbors": Symbol("K", "K", "neighbourhood size"),
    "trade_off": Symbol("lambda1", "λ1", "trade-off"),
    "flip_smoothing": Symbol("lambda2", "λ2", "flip smoothing"),
    "window": Symbol("n_t", "n_t", "window"),
    "pressure": Symbol("s0", "s0", "selection pressure"),
}
"""Options that have a symbol in the paper."""

_OPTIONS = {symbol.typed: option for option, symbol in SYMBOLS.items()}

SWEEPS: dict[str, dict[str, list[Any]]] = {
    "K": {"K": [0, 2, 4, 5, 6, 7, 8, 10, 20, "n"]},
    "mix": {"p_start": [0.1, 0.3, 0.5, 0.7, 0.9], "p_end": [0.1, 0.3, 0.5, 0.7, 0.9]},
    "lambda2": {"lambda2": [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]},
}
"""Studies of the paper -> the values they try, which it shows only as figures."""

ALL_ROWS = 1_000_000
"""K for "all rows": a selector takes no more neighbours than there are."""

_MIX = ("p_start", "p_end")


def ablation(variants: Sequence[str] = tuple(ABLATION)) -> list[Method]:
    """D2ACE and its variants of the ablation study, labelled A to K."""
    if not isinstance(variants, Sequence) or isinstance(variants, str) or not variants:
        raise UserError(f'variants must be a list such as ["A", "H"], got {variants!r}')
    for variant in variants:
        if not isinstance(variant, str) or variant not in ABLATION:
            known = ", ".join(f"{letter} ({what})" for letter, (what, _) in ABLATION.items())
            raise UserError(f"there is no ablation {variant!r}; choose from {known}")
    return [Method("d2ace", ABLATION[variant][1], variant) for variant in variants]


def sweep(vary: Mapping[str, Sequence[Any]], base: Method | None = None) -> list[Method]:
    """``base`` (D2ACE) with every combination of the values to vary, labelled by them.

    Names are options of the selector or the paper's symbols (:data:`SYMBOLS`; ``p_start`` and
    ``p_end`` for the two numbers of ``mix``). The value "n" of K means all rows.
    """
    base = base or Method("d2ace")
    if not vary:
        raise UserError("a sweep needs at least one option and the values to try")
    for name, values in vary.items():
        _check(base.selector, name, values)
    methods = []
    for values in itertools.product(*vary.values()):
        chosen = dict(zip(vary, values, strict=True))
        label = ", ".join(f"{_symbol(name)}={_shown(value)}" for name, value in chosen.items())
        methods.append(Method(base.selector, {**base.options, **_options(chosen, base)}, label))
    return methods


def parse_vary(word: str) -> dict[str, list[Any]]:
    """``name=v1,v2,v3`` as typed; a name alone is one of :data:`SWEEPS`."""
    name, equals, values = word.partition("=")
    if not equals:
        if name not in SWEEPS:
            raise UserError(
                f"a sweep is written name=v1,v2,v3, or as one of {', '.join(SWEEPS)}; got {word!r}"
                f"{did_you_mean(name, SWEEPS)}"
            )
        return SWEEPS[name]
    return {name: [parse_value(value) for value in values.split(",") if value.strip()]}


def parse_value(text: str) -> Any:
    """A value as typed: a number, true or false, numbers a/b, or else a word."""
    text = text.strip()
    if "/" in text:
        parts = [parse_value(part) for part in text.split("/")]
        numbers = all(isinstance(part, int | float) for part in parts)
        return parts if numbers else text  # which may be a path
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def printed(option: str) -> str:
    """An option as the paper prints it."""
    return SYMBOLS[option].printed if option in SYMBOLS else option


def _check(selector: str, name: str, values: Any) -> None:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise UserError(f"the values to try for {name!r} must be a list, got {values!r}")
    if len({canonical(value) for value in values}) < len(values):
        raise UserError(f"a value to try for {name!r} occurs twice in {canonical(values)}")
    if selector not in SELECTORS:  # a user's own; it is asked when it is made
        return
    known = options_of(SELECTORS[selector])
    if name not in [*known, *_OPTIONS, *_MIX]:
        raise UserError(
            f"{selector} has no option {name!r}{did_you_mean(name, known)} to vary; "
            f"it has {', '.join(known)}"
        )


def _options(chosen: Mapping[str, Any], base: Method) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in chosen.items():
        if name in _MIX:
            mix = list(options.get("mix", base.options.get("mix", (0.7, 0.3))))
            mix[_MIX.index(name)] = value
            options["mix"] = mix
        else:
            option = _OPTIONS.get(name, name)
            options[option] = ALL_ROWS if (option, value) == ("neighbors", "n") else value
    return options


def _symbol(name: str) -> str:
    return SYMBOLS[name].typed if name in SYMBOLS else name


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(_shown(item) for item in value)
    return value if isinstance(value, str) else canonical(value)
