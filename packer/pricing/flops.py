"""FLOPs of a training step, forward and backward, from tokens and squared sequence lengths.

    matrices     6 * P a token: a multiplication and an addition for each of P weights forward, twice that backward
    attention    6 * hidden * L**2 a layer and sequence: 4 * hidden * L**2 forward for the two products with L x L
                 matrices, three times that with the backward pass, halved because a causal mask needs half of it

P is counted without embeddings: 12 * hidden**2 a layer (attention 4, feed-forward 8; Kaplan et al. 2020), or with a
given FFN width 4 * hidden**2 + 3 * hidden * FFN (three matrices, as gated feed-forwards have). The attention term is
that of PaLM (Chowdhery et al. 2022, appendix B: 12 * layers * hidden * L a token), halved as FlashAttention counts it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A transformer's size. hidden: width; layers: count; ffn: width of a gated feed-forward, None: a plain one of
    4 * hidden."""

    hidden: int
    layers: int
    ffn: int | None = None

    @property
    def per_token(self) -> float:
        """FLOPs that each token costs."""
        square = self.hidden * self.hidden
        weights = 12 * square if self.ffn is None else 4 * square + 3 * self.hidden * self.ffn
        return 6.0 * self.layers * weights

    @property
    def per_square(self) -> float:
        """FLOPs for each unit of squared sequence length."""
        return 6.0 * self.layers * self.hidden
