"""Small-sample constants of the robust location and spread, by simulation on normal samples."""

import numpy as np

from harness.verdicts.noise import NORMAL_PAIR_MEDIAN


def constants_table(rng: np.random.Generator, draws: int) -> str:
    """Per n: variance factor of the Hodges-Lehmann location, bias and df of Shamos' variance."""
    lines = ["n   location variance × n   spread² bias   df / (n - 1)"]
    for n in (2, 3, 4, 5, 6, 7, 8, 12, 16, 24):
        samples = rng.standard_normal((draws if n <= 8 else draws // 5, n))
        i, j = np.triu_indices(n)
        centre = np.median((samples[:, i] + samples[:, j]) / 2.0, axis=1)
        i, j = np.triu_indices(n, 1)
        scale = np.median(np.abs(samples[:, i] - samples[:, j]), axis=1) / NORMAL_PAIR_MEDIAN
        square = scale**2
        df = 2.0 * square.mean() ** 2 / square.var()
        lines.append(f"{n:<3} {centre.var() * n:<23.3f} {square.mean():<14.3f} {df / (n - 1):.2f}")
    return "\n".join(lines)
