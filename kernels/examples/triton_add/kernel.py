"""The Triton kernel, in a file of its own: a spec imports Triton only when a variant is prepared."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):  # noqa: N803
    """out[i] = x[i] + y[i] for i < n; a program adds BLOCK elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < n
    tl.store(out + at, tl.load(x + at, mask=here) + tl.load(y + at, mask=here), mask=here)
