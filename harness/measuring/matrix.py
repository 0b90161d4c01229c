"""Campaigns of a matrix, one after another: the next is opened once the one before is closed."""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

from harness.errors import HarnessError, SetupError
from harness.llamacpp.flags import values_of
from harness.llamacpp.layers import model_layers
from harness.llamacpp.matrices import Arm as ArmLayer
from harness.llamacpp.matrices import Facts, arms_of
from harness.measuring.campaign import Campaign, hold_machine
from harness.measuring.reporter import Reporter
from harness.questions.family import MEMBERS
from harness.serving.fidelity import Fingerprint
from harness.serving.launch import supported_flags
from harness.serving.packaged import member_model, reference_model
from harness.serving.session import binary_of, refuse_impossible, served_model
from harness.settings import Settings, load
from harness.verdicts.judged import Judged

Arm = str | None
"""The name of an arm; `None` for the one of a run without a matrix."""

FAMILY = "reference"
"""What records call the matrix of `--reference`."""


class Arms:
    """The campaigns of a run, by arm. Holds the machine over all of them."""

    def __init__(self, campaigns: Iterable[Campaign], reporter: Reporter) -> None:
        self._campaigns = {campaign.settings.arm: campaign for campaign in campaigns}
        self._reporter = reporter
        self._stack = ExitStack()
        self._refused: dict[Arm, str] = {}
        self._opened: list[Arm] = []
        self._open: Campaign | None = None

    def start(self) -> None:
        """Take the machine; without a matrix, open the one campaign, too.

        Raises:
            HarnessError: another run holds the machine, or the campaign cannot be opened.
        """
        self._stack.enter_context(hold_machine(next(iter(self._campaigns.values())).settings))
        if None in self._campaigns:
            try:
                self.campaign(None)
            except BaseException:
                self.close()
                raise

    def campaign(self, arm: Arm) -> Campaign:
        """The campaign of `arm`, opened now if it is not; the one before it is then closed.

        Raises:
            HarnessError: it cannot be opened, now or when it was first asked for.
        """
        if arm in self._refused:
            raise HarnessError(self._refused[arm])
        campaign = self._campaigns[arm]
        if arm not in self._opened:
            self._end()
            if arm is not None:
                said = f"arm {arm}: {' '.join(campaign.settings.server_args)}"
                self._reporter.say(said.rstrip(" :"))
            try:
                campaign.start(unlike=self._unlike(campaign))
            except HarnessError as error:
                self._refused[arm] = str(error)
                raise
            self._opened.append(arm)
            self._open = campaign
        return campaign

    def _unlike(self, campaign: Campaign) -> Fingerprint:
        """The output of an arm measured before whose RoPE is scaled otherwise."""
        scale = _rope_scale(campaign.settings)
        before = (self._campaigns[arm] for arm in self._opened)
        others = (c.fingerprint for c in before if _rope_scale(c.settings) != scale)
        return next(others, ())

    def _end(self) -> None:
        if self._open is not None:
            campaign, self._open = self._open, None
            campaign.finish()
            campaign.close()

    def finish(self) -> None:
        """End the open arm as a run that got through: its second control and footer."""
        if self._open is not None:
            self._open.finish()

    def close(self) -> None:
        """Stop the open arm's server and let go of the machine; safe to call twice."""
        if self._open is not None:
            self._open.close()
            self._open = None
        self._stack.close()

    def results(self) -> dict[Arm, Judged | str]:
        """What came of every arm that was tried: its run, or why it could not be measured."""
        found = {arm: self._refused.get(arm) or c.judged() for arm, c in self._campaigns.items()}
        return {arm: result for arm, result in found.items() if result is not None}


def _rope_scale(settings: Settings) -> str | None:
    return values_of(settings.server_args).get("--rope-scale")


def load_arms(
    options: Mapping[str, object], root: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Settings, ...]:
    """The settings of every arm of `--matrix` or `--reference`, in the order they are measured in.

    Raises:
        SetupError: no such matrix, or an arm that cannot work, with its reason.
    """
    base = load(options, root, environ)
    if base.reference is not None:
        arms = tuple(map(_reference, base.reference))
        return tuple(_checked(arm, FAMILY, options, root, environ) for arm in arms)
    assert base.matrix is not None
    arms = arms_of(base.matrix, base.matrices, _facts(base))
    return tuple(_checked(arm, base.matrix, options, root, environ) for arm in arms)


def _reference(name: str) -> ArmLayer:
    """The packaged model of plain attention, asked for needles, or a member with its own asks."""
    if name not in MEMBERS:
        few = {"repeats": 3, "generate_tokens": 16, "remeasure_s": 0.0}  # its speed is nothing here
        return ArmLayer(name, {"model": str(reference_model()), **few})
    # Other backgrounds hold names and signs that members take for commands.
    layer = {"model": str(member_model(name)), "family": name, "background": "plain"}
    return ArmLayer(name, layer)


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
    arm: ArmLayer,
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
        option = "--reference" if matrix == FAMILY else f"--matrix {matrix}"
        raise SetupError(f"{option}, arm {arm.name}: {error}") from error
    return settings
