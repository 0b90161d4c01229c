"""Campaigns of a matrix, one after another: the next is opened once the one before is closed."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.errors import HarnessError, SetupError
from harness.llamacpp.flags import values_of
from harness.llamacpp.layers import model_layers
from harness.llamacpp.matrices import Arm, Facts, arms_of
from harness.measuring.campaign import Campaign, hold_machine
from harness.measuring.reporter import Reporter
from harness.serving.launch import supported_flags
from harness.serving.likeliest_tokens import Fingerprint
from harness.serving.session import binary_of, refuse_impossible, served_model
from harness.settings import Settings, load
from harness.verdicts.judged import ArmResult


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured on an arm: up to which depth (`None`: no ladder), probes or not."""

    deepest: int | None
    probes: bool


class ArmRuns:
    """The arms' campaigns. Holds the machine over all of them."""

    def __init__(
        self, arms: tuple[Settings, ...], wanted: Mapping[str, Wanted], reporter: Reporter
    ) -> None:
        self._arms = {str(settings.arm): settings for settings in arms}
        self._wanted = wanted
        self._reporter = reporter
        self._stack = ExitStack()
        self._campaigns: dict[str, Campaign] = {}
        self._refused: dict[str, str] = {}
        self._open: Campaign | None = None

    def start(self) -> None:
        """Take the machine.

        Raises:
            LockedError: another run holds it.
        """
        self._stack.enter_context(hold_machine(next(iter(self._arms.values()))))

    def campaign(self, arm: str) -> Campaign:
        """The campaign of `arm`, opened now if it is not; the one before it is then closed.

        Raises:
            HarnessError: it cannot be opened, now or when it was first asked for.
        """
        if arm in self._refused:
            raise HarnessError(self._refused[arm])
        if arm not in self._campaigns:
            self._end()
            wanted = self._wanted[arm]
            campaign = Campaign(
                self._arms[arm],
                self._reporter,
                deepest=wanted.deepest,
                probes=wanted.probes,
                takes_machine=False,
                unlike=self._unlike(arm),
            )
            self._reporter.say(f"arm {arm}: {' '.join(self._arms[arm].server_args)}".rstrip(" :"))
            try:
                campaign.start()
            except HarnessError as error:
                self._refused[arm] = str(error)
                raise
            self._campaigns[arm] = self._open = campaign
        return self._campaigns[arm]

    def _unlike(self, arm: str) -> Fingerprint:
        """The output of an arm measured before whose RoPE is scaled otherwise than `arm`'s."""
        scale = _rope_scale(self._arms[arm])
        others = (c for n, c in self._campaigns.items() if _rope_scale(self._arms[n]) != scale)
        return next((c.fingerprint for c in others), ())

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

    def results(self) -> list[ArmResult]:
        """What came of every arm that was tried."""
        results = []
        for arm in self._arms:
            if arm in self._refused:
                results.append(ArmResult(arm, self._refused[arm]))
            elif (campaign := self._campaigns.get(arm)) is not None:
                record, verdict = campaign.record(), campaign.verdict()
                if record is not None and verdict is not None:
                    path = str(campaign.record_path)
                    results.append(ArmResult(arm, None, record, verdict, path))
        return results


def _rope_scale(settings: Settings) -> str | None:
    return values_of(settings.server_args).get("--rope-scale")


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
