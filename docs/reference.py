"""For the reference: every parameter's own default, also where several share a description."""

from __future__ import annotations

from typing import Any

from griffe import DocstringSectionParameters, Extension, Object


class Defaults(Extension):
    """Griffe gives all names of ``a, b : int`` the default of the first."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Take the defaults from the signature."""
        if obj.docstring is None or not (obj.is_class or obj.is_function):
            return
        known = {parameter.name: parameter for parameter in getattr(obj, "parameters", [])}
        for section in obj.docstring.parsed:
            if isinstance(section, DocstringSectionParameters):
                for described in section.value:
                    if described.name in known:
                        described.value = known[described.name].default
