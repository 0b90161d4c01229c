"""Student's t distribution and the normal one: what a verdict needs of `scipy.special`, by itself.

Importing scipy takes longer than reading, judging and showing a run together. The tests hold these
functions against scipy's.
"""

import math
from functools import lru_cache
from statistics import NormalDist

_STEPS = 300
_EPSILON = 1e-15


@lru_cache(maxsize=1024)
def upper_tail(t: float, df: float) -> float:
    """Probability of a value above `t`, which is not negative, at `df` degrees of freedom."""
    whole = df + t * t
    return 0.5 * _beta(df / whole, t * t / whole, df / 2.0, 0.5)


@lru_cache(maxsize=1024)
def quantile(p: float, df: float) -> float:
    """The value below which a share `p`, at least a half, of the distribution lies.

    By Newton's method from the normal quantile, which is below it: the tail is convex, so that no
    step goes too far.
    """
    t, tail = normal_quantile(p), 1.0 - p
    scale = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0) - 0.5 * math.log(df * math.pi)
    for _ in range(_STEPS):
        density = math.exp(scale - (df + 1.0) / 2.0 * math.log1p(t * t / df))
        step = (upper_tail(t, df) - tail) / density
        t += step
        if abs(step) <= _EPSILON * t:
            break
    return t


def normal_quantile(p: float) -> float:
    """The value below which a share `p` of the standard normal distribution lies."""
    return NormalDist().inv_cdf(p)


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function at `x`, which is 1 - `rest`.

    By its continued fraction, DLMF 8.17.22 (https://dlmf.nist.gov/8.17.E22), after Lentz.
    """
    if x <= 0.0 or rest <= 0.0:
        return float(x > 0.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta(rest, x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log(rest)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    product = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + term * d)
            c = 1.0 + term / c
            product *= c * d
        if abs(c * d - 1.0) < _EPSILON:
            break
    return front * product
