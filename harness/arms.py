"""The arms of a matrix as settings, each checked before anything is started."""

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from harness.core.layers import model_layers
from harness.core.matrices import Arm, Facts, arms_of
from harness.errors import SetupError
from harness.serving.launch import supported_flags
from harness.serving.session import binary_of, refuse_impossible, served_model
from harness.settings import Settings, load


def load_arms(
    options: Mapping[str, object], root: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Settings, ...]:
    """The settings of every arm of `--matrix`, in the order they are measured in.

    Raises:
        SetupError: no such matrix, or an arm that cannot work, with its reason.
    """
    base = load(options, root, environ)
    assert base.matrix is not None
    arms = arms_of(base.matrix, base.matrices, _facts(base))
    return tuple(_checked(arm, base.matrix, options, root, environ) for arm in arms)


def _facts(base: Settings) -> Facts:
    gguf = served_model(base)
    layers = model_layers(gguf.metadata) if gguf is not None else None
    binary = None if base.server_url else binary_of(base)
    return Facts(
        ctx_tokens=base.ctx_tokens,
        depths=base.rung_depths,
        server_args=base.server_args,
        trained_ctx_tokens=gguf.trained_ctx_tokens if gguf is not None else None,
        architecture=gguf.architecture if gguf is not None else None,
        mtp_layers=len(layers.mtp) if layers is not None else 0,
        overrides=binary is not None and "--override-kv" in supported_flags(binary),
        cpu_cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
    )


def _checked(
    arm: Arm,
    matrix: str,
    options: Mapping[str, object],
    root: Path,
    environ: Mapping[str, str],
) -> Settings:
    try:
        settings = load(options, root, environ, {**arm.layer, "matrix": matrix, "arm": arm.name})
        if settings.server_url is None:
            refuse_impossible(settings, served_model(settings))
    except SetupError as error:
        raise SetupError(f"--matrix {matrix}, arm {arm.name}: {error}") from error
    return settings
