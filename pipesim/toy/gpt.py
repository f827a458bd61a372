"""A GPT in plain PyTorch, the uncut reference that every cut run is compared with.

Pre-norm blocks as in Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019, section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class GptSpec:
    """The shape of a tiny GPT; ``tied`` shares the token table with the head. The defaults are the base model's."""

    vocab: int = 44
    context: int = 128
    width: int = 64
    blocks: int = 2
    heads: int = 4
    tied: bool = False

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}.")


class Block(nn.Module):
    """Attention and an MLP of four times the width, each behind a LayerNorm and added to what came in."""

    def __init__(self, spec: GptSpec) -> None:
        super().__init__()
        self.heads = spec.heads
        self.attention_norm = nn.LayerNorm(spec.width)
        self.qkv = nn.Linear(spec.width, 3 * spec.width)
        self.projection = nn.Linear(spec.width, spec.width)
        self.mlp_norm = nn.LayerNorm(spec.width)
        self.up = nn.Linear(spec.width, 4 * spec.width)
        self.down = nn.Linear(4 * spec.width, spec.width)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` has shape (batch, length, width), and so has the result."""
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))


class Gpt(nn.Module):
    """Learned positions, ``blocks`` blocks, a final LayerNorm and a head without bias."""

    def __init__(self, spec: GptSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tokens = nn.Embedding(spec.vocab, spec.width)
        self.positions = nn.Embedding(spec.context, spec.width)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.blocks))
        self.norm = nn.LayerNorm(spec.width)
        self.head = nn.Linear(spec.width, spec.vocab, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if spec.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape (batch, length, vocab) for ``tokens`` of shape (batch, length)."""
        length = tokens.shape[1]
        if length > self.spec.context:
            raise ValueError(f"{length} tokens exceed the context of {self.spec.context}.")
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(self.norm(x)))
