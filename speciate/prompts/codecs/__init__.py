"""Codecs: how tasks speak with models too small for English. One file for each, and one line in ``CODECS``."""

from __future__ import annotations

from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.prompts.codecs.codec import Codec
from speciate.prompts.codecs.maze import MazeCodec
from speciate.prompts.codecs.programs import ProgramsCodec

CODECS: Final[dict[str, Codec]] = {"maze": MazeCodec(), "programs": ProgramsCodec()}
"""The codecs by the name that a policy gives."""


def codec_of(name: str) -> Codec:
    """Return a codec.

    Raises:
        InvalidInputError: There is none of that name; the message lists those there are.
    """
    if name not in CODECS:
        raise InvalidInputError(f"no codec is called {name!r}.", remedy=f"Codecs: {', '.join(CODECS)}.")
    return CODECS[name]


__all__ = ["CODECS", "Codec", "codec_of"]
