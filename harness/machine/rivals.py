"""Which processes are inference servers or benchmarks of somebody else."""

import re
from collections.abc import Sequence

# Beginnings of executables' names, lower case. Linux cuts names at 15 characters.
EXECUTABLES = (
    "llama-",
    "llama_",
    "llamafile",
    "ollama",
    "lm studio",
    "lm-studio",
    "lmstudio",
    "koboldcpp",
    "vllm",
    "sglang",
    "lemonade",
    "text-generation",
    "tabbyapi",
    "stable-diffusion",
    "comfyui",
)
# The same for programs run by an interpreter: script or module in the command line.
SCRIPTS = re.compile(
    r"(?i)^(vllm|sglang|koboldcpp|llama_cpp|mlx_lm|tabbyapi|aphrodite|exllama|text-generation"
    r"|harness\.serving|comfyui)"
)
INTERPRETERS = ("python", "pypy", "ruby", "node", "uv")
LOOKED_AT = 4  # words of a command line: interpreter, flags, module


def by_name(name: str) -> str | None:
    """The rival's name if an executable of this name is one."""
    plain = name.lower().removesuffix(".exe")
    return plain if plain.startswith(EXECUTABLES) else None


def runs_a_script(name: str) -> bool:
    """Whether the command line must be looked at to know what a process is."""
    return name.lower().startswith(INTERPRETERS)


def by_command(command: Sequence[str]) -> str | None:
    """The rival's name if one of the first words names its script or module."""
    for word in command[:LOOKED_AT]:
        found = SCRIPTS.match(re.split(r"[\\/]", word)[-1])
        if found:
            return found[1].lower()
    return None
