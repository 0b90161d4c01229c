"""Unit tests run under the project's own Hypothesis profile, here as in CI."""

from hypothesis import settings

from harness.questions.cases import PROFILE, register_profiles

register_profiles()
settings.load_profile(PROFILE)
