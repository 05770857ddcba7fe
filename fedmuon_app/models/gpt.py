"""A decoder of tokens: causal attention in pre-norm blocks (Radford et al. 2019), rotary or learned positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, rotary: bool) -> None:
        """Build it; ``width`` is a multiple of ``heads``."""
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """float[B, L, width] to the same."""
        B, L, d = x.shape
        qkv = self.qkv(self.norm_1(x)).view(B, L, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, heads, L, d/heads) each
        if self.rotary:
            q, k = rotated(q), rotated(k)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, d)
        x = x + self.out(attended)
        mlp: Tensor = self.down(F.gelu(self.up(self.norm_2(x))))
        return x + mlp


class GPT(nn.Module):
    """Tokens int64[B, L] to scores float[B, L, vocabulary]; the head is the embedding's table."""

    splits = {"*.qkv.weight": 3}  # noqa: RUF012 - the queries', keys' and values' matrices, one above the other

    def __init__(
        self,
        num_classes: int,
        layers: int = 2,
        width: int = 128,
        heads: int = 4,
        positions: str = "rotary",
        length: int = 256,
    ) -> None:
        """Build it.

        Args:
            num_classes: the vocabulary.
            layers: blocks.
            width: of the embedding, a multiple of twice the number of heads.
            heads: of every attention.
            positions: ``rotary`` (Su et al. 2021) or ``learned``.
            length: tokens at most, with learned positions.

        Raises:
            ValueError: the width does not suit the heads, or ``positions`` is neither rotary nor learned.
        """
        super().__init__()
        if width % (2 * heads) or positions not in ("rotary", "learned"):
            raise ValueError(f"width = {width}: a multiple of 2·heads; positions = {positions}: rotary or learned")
        self.embedding = nn.Embedding(num_classes, width)
        self.positions = nn.Embedding(length, width) if positions == "learned" else None
        self.blocks = nn.ModuleList(Block(width, heads, positions == "rotary") for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.embedding, self.positions):
            if table is not None:
                nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the token that follows each."""
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)


def rotated(x: Tensor) -> Tensor:
    """Pairs of numbers turned by an angle that grows with their place: float[…, L, d] (Su et al. 2021)."""
    L, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(L, device=x.device, dtype=x.dtype)[:, None] * speeds
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
