"""A matrix product, a softmax and an attention in PyTorch, each in a range, after a warm-up outside."""

import torch

from profiler import annotate

a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
x = torch.randn(8192, 8192, device="cuda")
q, k, v = (torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
STEPS = {
    "matmul": lambda: a @ a,
    "softmax": lambda: torch.softmax(x, dim=-1),
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
}
for name, step in STEPS.items():
    step()
    with annotate(name):
        step()
torch.cuda.synchronize()
