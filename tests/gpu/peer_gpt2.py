"""PyTorch's training step of GPT-2 (124M parameters, 50,304 symbols), bf16 autocast: eager and compiled, both with fused attention and
fused AdamW. Prints lines NAME<TAB>TOKENS PER SECOND. What tests/gpu/run.sh sets beside Tandem's `bench step --preset gpt2`."""

import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, DIM, HEADS, LENGTH, BATCH, SYMBOLS = 12, 768, 12, 1024, 16, 50304
WARM_UP, STEPS = 5, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(DIM, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(SYMBOLS, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(DIM)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.places(torch.arange(LENGTH, device=inputs.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).view(-1, SYMBOLS), targets.reshape(-1))


def measure(name, compiled):
    torch.manual_seed(1)
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step_model = torch.compile(model) if compiled else model
    text = torch.randint(SYMBOLS, (BATCH, LENGTH + 1), device="cuda")
    begin = 0.0
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(f"{name}\t{STEPS * BATCH * LENGTH / (time.perf_counter() - begin):.0f}", flush=True)


measure("GPT-2 124M, batch 16 x 1,024, bf16, eager, tokens/s", compiled=False)
measure("GPT-2 124M, batch 16 x 1,024, bf16, compiled, tokens/s", compiled=True)
