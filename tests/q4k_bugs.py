"""Bugs to plant in the q4_K ladder, and what ``verify`` must say of each."""

from __future__ import annotations

from pathlib import Path

from planted_bug import PlantedBug

from profiler.launch import Bench
from profiler.loading import load_specimen
from profiler.specimen import Shape
from profiler.verify import Check, verify

SHAPE = Shape(tokens=5, rows=130, k=512)


class Bug(PlantedBug):
    """A bug of kernels/q4k."""

    specimen = "q4k"


LOOKUP = "planes = _registered.get(pointer)\n    if planes is None or planes.weights() is None"
ERROR = "relative error"
FELL_BACK = "q4k_gemm_planes_kd{0} was not launched, but q4k_gemm_wide_kd{0}"
BUGS = (
    # Expansion
    Bug("nibble_mask", "q4k.cuh", "(bytes >> (4 * odd)) & 0x0f0f0f0f", "(bytes >> (4 * odd)) & 0x0f070f0f",
        "2_wide_kd4", "INCORRECT", ERROR),
    Bug("nibbles_swapped", "2_wide.cu", "[i % 4], chunk % 2)", "[i % 4], 1 - chunk % 2)",
        "3_wide_kd8", "INCORRECT", ERROR),
    Bug("high_bits_of_scales", "q4k.cuh", "(header.y >> 2) & 0x30303030", "(header.y >> 4) & 0x30303030",
        "1_narrow", "INCORRECT", ERROR),
    # Layout of the planes
    Bug("eb_by_row", "expand.cu", "((size_t)block * padded + row) * 256", "((size_t)row * gridDim.y + block) * 256",
        "4_planes_kd4", "INCORRECT", ERROR),
    Bug("eb_sub_blocks", "expand.cu", "* 256 + j * CHUNK)", "* 256 + (j ^ 1) * CHUNK)",
        "5_planes_kd8", "INCORRECT", ERROR),
    Bug("sb_by_row", "expand.cu", "(size_t)(block * CHUNKS + j) * padded + row",
        "((size_t)row * gridDim.y + block) * CHUNKS + j", "5_planes_kd8", "INCORRECT", ERROR),
    # Registry
    Bug("lookup_never_hits", "planes.py", LOOKUP, LOOKUP.replace("if planes", "if True or planes"),
        "4_planes_kd4", "INVALID", FELL_BACK.format(4)),
    Bug("lookup_ignores_the_pointer", "planes.py", LOOKUP,
        LOOKUP.replace("_registered.get(pointer)", "next(iter(_registered.values()), None)"),
        "5_planes_kd8", "INCORRECT", ERROR),
    Bug("not_registered", "spec.py", "    planes.register(case, weights, shape.rows, shape.k)\n", "",
        "5_planes_kd8", "INVALID", FELL_BACK.format(8)),
)  # fmt: skip
ONE_BUFFER = "__syncthreads();  // nobody reads the single buffers any more"
STAGE_IS_THERE = "__syncthreads();  // the stage is there, and nobody reads the one before it any more"
# What only the host's fibers are bound to show: races, and reads outside of an array.
HIDDEN = (
    Bug("wide_one_buffer_overwritten", "2_wide.cu", ONE_BUFFER, "", "3_wide_kd8", "INCORRECT", ERROR),
    Bug("planes_one_buffer_overwritten", "4_planes.cu", ONE_BUFFER, "", "5_planes_kd8", "INCORRECT", ERROR),
    Bug("stage_read_too_early", "4_planes.cu", STAGE_IS_THERE, "", "4_planes_kd4", "INCORRECT", ERROR),
    Bug("copies_not_awaited", "2_wide.cu", "wait_copies<0>();", "wait_copies<1>();", "2_wide_kd4", "INCORRECT",
        "not deterministic"),
    Bug("tokens_past_the_end", "q4k.cuh", "token0 + (int)line + i < tokens", "true", "2_wide_kd4", "INVALID",
        "read outside of every array"),
    Bug("rows_past_the_end", "2_wide.cu", "min(row0 + (int)row, rows - 1)", "(row0 + (int)row)",
        "3_wide_kd8", "INVALID", "read outside of every array"),
)  # fmt: skip


def checked(folder: Path, name: str, bench: Bench) -> Check:
    """What ``verify`` says of a variant of the specimen in ``folder``.

    Planes of another matrix of the same sizes are registered meanwhile, and were before any other.
    """
    specimen = load_specimen(folder)
    (variant,) = specimen.pick((name,))
    other = bench.case(specimen, variant, SHAPE, specimen.make_inputs(SHAPE, seed=99))
    other.prepare()
    (check,) = verify(specimen, (variant,), bench, [SHAPE], programs=False).checks
    # Not before.
    del other
    return check
