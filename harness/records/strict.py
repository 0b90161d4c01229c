"""What every line of a record and of a baseline is: immutable, and nothing unknown in it."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Immutable, unknown fields refused, NaN and infinities refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
