"""A CuPy ElementwiseKernel, launched three times."""

import cupy

scale = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * 2 + y * y", "scale_and_square")
x = cupy.random.rand(1 << 26, dtype=cupy.float32)
for _ in range(3):
    z = scale(x, x)
cupy.cuda.Device().synchronize()
