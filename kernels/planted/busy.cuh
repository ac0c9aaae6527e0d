// Honest work beside a planted cause: a chain of integer steps, a line each, none of which can lead a ranking.
#pragma once

// The finaliser of MurmurHash3 and xxHash's avalanche (public domain), one after the other.
__device__ __forceinline__ unsigned busy(unsigned x)
{
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    x ^= x >> 15;
    x *= 0x85ebca77u;
    x ^= x >> 13;
    x *= 0xc2b2ae3du;
    x ^= x >> 16;
    return x;
}

// As often as asked. Rolled, because the end of one busy() undoes the beginning of the next, which a compiler sees.
__device__ __forceinline__ unsigned toil(unsigned x, int times)
{
#pragma unroll 1
    for (int i = 0; i < times; ++i) x = busy(x);
    return x;
}
