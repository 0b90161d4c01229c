"""Profiles: named server configurations of `harness.toml`, and what wins where several speak.

From low to high: the file's own settings, its profile (and what that extends), the command line,
an arm of a matrix. Flags of the server are merged one by one, whatever their spelling; `[bands]`
and `[env]` entry by entry; everything else is replaced.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import SetupError
from harness.llamacpp.command_line import split_arguments
from harness.llamacpp.flags import merged, with_dashes

Layer = Mapping[str, Any]
"""Settings by the names they have in `harness.toml`."""

_TABLES = ("bands", "env", "builds")
_SERVERS = ("server_url", "server_bin", "embedded")
"""Ways to come by a server: a layer that names one displaces those below it."""


def profile_layer(profiles: object, name: str) -> dict[str, Any]:
    """The settings of one profile, with those of the profiles it extends under them.

    Raises:
        SetupError: no such profile, one that extends itself, or one that is no table.
    """
    if not isinstance(profiles, Mapping) or not profiles:
        raise SetupError(
            f"--profile {name}: harness.toml has no profiles; write one as [profiles.{name}]"
        )
    chain: list[str] = []
    layers: list[Layer] = []
    wanted: object = name
    while wanted is not None:
        if wanted in chain:
            raise SetupError(
                f"profile {name} extends itself ({' -> '.join([*chain, str(wanted)])}); drop one "
                "`extends`"
            )
        if not isinstance(wanted, str) or wanted not in profiles:
            asked = f"--profile {name}" if not chain else f"profile {chain[-1]} extends {wanted!r}"
            raise SetupError(
                f"{asked}: there is no such profile; there are {', '.join(sorted(profiles))}"
            )
        table = profiles[wanted]
        if not isinstance(table, Mapping):
            raise SetupError(
                f"profile {wanted}: expected a table, [profiles.{wanted}], got {table!r}"
            )
        chain.append(wanted)
        layers.append({k: v for k, v in table.items() if k != "extends"})
        wanted = table.get("extends")
    return layered(*reversed(layers))


def layered(*layers: Layer) -> dict[str, Any]:
    """One set of settings from several, each winning over those before it.

    Raises:
        SetupError: `server_args`, `bands` or `env` are of no usable kind.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for server in _SERVERS:
            if layer.get(server):
                for other in _SERVERS:
                    result.pop(other, None)
        if layer.get("server_url"):
            for key in ("server_args", "env"):  # those of a server we would start
                result.pop(key, None)
        for key, value in layer.items():
            if key == "server_args":
                result[key] = _with_arguments(result.get(key, ()), value)
            elif key in _TABLES and isinstance(value, Mapping):
                result[key] = {**result.get(key, {}), **value}
            else:
                result[key] = value
    return result


def _with_arguments(under: Sequence[str], given: object) -> tuple[str, ...]:
    """`under` with what a layer gives: text, a list of words, or a table of flags."""
    if not isinstance(given, Mapping):
        return merged(under, _words(given))
    over: list[str] = []
    dropped: list[str] = []
    for name, value in given.items():
        flag = with_dashes(str(name))
        for one in value if isinstance(value, list) else [value]:
            if one is False:
                dropped.append(flag)
            elif one is True:
                over.append(flag)
            elif isinstance(one, str | int | float):
                over += [flag, str(one)]
            else:
                raise SetupError(
                    f"server_args: {name} = {one!r} is no value of a flag; expected text, a "
                    "number, true for a switch, or false to drop an inherited one"
                )
    kept = merged(under, dropped)[: -len(dropped) or None]
    return merged(kept, over)


def _words(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(split_arguments(given, "--server-args"))
    if isinstance(given, list | tuple):
        return tuple(str(word) for word in given)
    raise SetupError(
        f"server_args = {given!r}: expected text such as '-ngl 99 -fa on', a list of words, or a "
        'table such as { ngl = 99, fa = "on" }'
    )
