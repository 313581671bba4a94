"""PyTorch's kernels of a GPT-2 step (124M parameters, batch 16 x 1,024), one call of each, and what the card can do: a matrix product and a
copy. Prints lines NAME<TAB>TIME AND RATE. What tests/gpu/run.sh sets beside the kernels of Tandem's `bench step --preset gpt2`."""

import torch
import torch.nn.functional as F

DIM, HEADS, LENGTH, BATCH, SYMBOLS, PARAMETERS = 768, 12, 1024, 16, 50304, 124_475_904
ROWS, REPEATS = BATCH * LENGTH, 20


def milliseconds(call):
    """The median over repeats, on the card's clock."""
    times = []
    for repeat in range(REPEATS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


def report(name, call, flops=0, num_bytes=0):
    ms = milliseconds(call)
    rate = f"{flops / ms * 1e-9:.0f} TFLOP/s" if flops else f"{num_bytes / ms * 1e-6:.0f} GB/s"
    print(f"{name}\t{ms:.3f} ms, {rate}", flush=True)


def tensor(*shape, dtype=torch.bfloat16, gradient=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=gradient)


a, b = tensor(8192, 8192), tensor(8192, 8192)
report("matrix product 8,192, bf16", lambda: a @ b, flops=2 * 8192**3)
big, copy = tensor(128 << 20, dtype=torch.float32), tensor(128 << 20, dtype=torch.float32)
report("copy of 512 MiB", lambda: copy.copy_(big), num_bytes=2 * 512 * 2**20)
del big, copy

q, k, v = (tensor(BATCH, HEADS, LENGTH, DIM // HEADS, gradient=True) for _ in range(3))
pairs = BATCH * HEADS * LENGTH * (LENGTH + 1) / 2
mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
grad = torch.randn_like(mixed)
with torch.no_grad():
    report("attention_forward, bf16", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), flops=4 * pairs * DIM / HEADS)
report("attention_backward, bf16", lambda: torch.autograd.grad(mixed, (q, k, v), grad, retain_graph=True), flops=10 * pairs * DIM / HEADS)

x, gamma, beta = (tensor(*shape, dtype=torch.float32, gradient=True) for shape in ((ROWS, DIM), (DIM,), (DIM,)))
normed = F.layer_norm(x, (DIM,), gamma, beta)
grad = torch.randn_like(normed)
with torch.no_grad():
    report("layer_norm_forward, f32", lambda: F.layer_norm(x, (DIM,), gamma, beta), num_bytes=2 * 4 * ROWS * DIM)
report(
    "layer_norm_backward, f32",
    lambda: torch.autograd.grad(normed, (x, gamma, beta), grad, retain_graph=True),
    num_bytes=3 * 4 * ROWS * DIM,
)

logits, target = tensor(ROWS, SYMBOLS, gradient=True), torch.randint(SYMBOLS, (ROWS,), device="cuda")
report(
    "cross entropy with its gradient, bf16",
    lambda: torch.autograd.grad(F.cross_entropy(logits, target), logits),
    num_bytes=2 * 2 * ROWS * SYMBOLS,
)
del logits

weights = [tensor(PARAMETERS // 148, dtype=torch.float32, gradient=True) for _ in range(148)]
for weight in weights:
    weight.grad = torch.randn_like(weight)
optimizer = torch.optim.AdamW(weights, fused=True)
report("AdamW of 124M parameters, f32", optimizer.step, num_bytes=7 * 4 * PARAMETERS)
