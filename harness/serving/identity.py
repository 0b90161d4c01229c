"""What a server says it is: its build, flags and context, and the model it serves."""

import contextlib
import hashlib
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.errors import SetupError
from harness.llamacpp.builds import EMBEDDED_WHEEL
from harness.llamacpp.flags import key_of, noted_env, noted_of, without_secrets
from harness.records.lines import BuildOrigin, ModelIdentity, ServerIdentity
from harness.serving.gguf_file import model_identity, read_gguf
from harness.serving.shapes import ListedModel, ModelMeta, Props, inert, shaped

if TYPE_CHECKING:
    from harness.serving.client import Client

_NAME_CHARS = 120


def described(
    client: "Client", named: str | None = None
) -> tuple[Props | None, ListedModel | None]:
    """`/props` and the entry of `/v1/models` (`named`, else the first), `None` where there is none.

    Raises:
        SetupError: no model of that name is served.
    """
    props, model = client.get("/props"), client.listed_model(named)
    return (
        None if props is None else shaped(Props, props, "/props"),
        None if model is None else shaped(ListedModel, model, "/v1/models"),
    )


def identity_of(
    origin: str,
    props: Props | None,
    argv: "list[str] | tuple[()]",
    *,
    reduced: bool,
    env: Mapping[str, str] = MappingProxyType({}),
    fetched: BuildOrigin | None = None,
) -> ServerIdentity:
    """Which server it is; `argv` is empty for one that we did not start."""
    props = props or Props()
    build = inert(props.build_info or "unknown", _NAME_CHARS)
    if origin == "embedded":
        wheel = fetched.version if fetched else importlib.metadata.version(EMBEDDED_WHEEL)
        build = f"b{wheel.rsplit('.', 1)[-1]} (xllamacpp {wheel})"
    n_ctx = props.default_generation_settings.n_ctx
    key = key_of(argv) if argv else {}
    if not argv:
        key = {"ctx": n_ctx, "parallel": props.total_slots, "flags": "unknown"}
    return ServerIdentity(
        origin="url" if origin == "url" else "binary" if origin == "binary" else "embedded",
        build=build,
        argv=without_secrets(argv),
        n_ctx=n_ctx or None,
        reduced=reduced,
        key=key,
        noted=noted_of(argv) | noted_env(env),
        fetched=fetched,
    )


def model_of(props: Props | None, listed: ListedModel | None, local: bool) -> ModelIdentity:
    """Which model it serves: by its file where that can be read from here, else as it says."""
    props, listed = props or Props(), listed or ListedModel()
    path = props.model_path
    if local and path:
        with contextlib.suppress(SetupError, OSError):
            if Path(path).is_file():
                return model_identity(read_gguf(Path(path)))
    meta = listed.meta or ModelMeta()
    named = PurePath((path or listed.id or "unknown").replace("\\", "/")).name
    name = inert(named, _NAME_CHARS)
    facts = [name, str(meta.n_params or ""), str(meta.size or "")]
    digest = hashlib.sha256("/".join(facts).encode()).hexdigest()[:8]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removesuffix(".gguf")).strip("-")
    return ModelIdentity(
        identity=f"{slug or 'unknown'}-{digest}",
        name=name,
        file_type=meta.ftype or props.model_ftype,
        parameters=meta.n_params,
        trained_ctx_tokens=meta.n_ctx_train,
    )
