"""Bugs to plant in the q6_K ladder, and what ``verify`` must say of each."""

from __future__ import annotations

from dataclasses import dataclass

from planted_bug import PlantedBug

from profiler.specimen import Shape

# 224 and 210 bytes from block to block: where 16-byte loads are possible, and where they are not.
WIDE, NARROW = (Shape(tokens=5, rows=130, k=512, pitch=pitch) for pitch in (224, 210))


@dataclass(frozen=True)
class Bug(PlantedBug):
    """A bug of kernels/q6k, which shows at one pitch."""

    specimen = "q6k"
    wide: bool = True

    @property
    def shape(self) -> Shape:
        """Where it shows."""
        return WIDE if self.wide else NARROW


ALIGNED = "return (pitch & 15) == 0 &&"
BUGS = (
    Bug("expansion_shift", "q6k.cuh", "highs >> run.high_shift & 0x03", "highs >> run.low_shift & 0x03",
        "4_wide_loads", "INCORRECT", "relative error"),
    Bug("expansion_offset", "q6k.cuh", "0x60606060u", "0x61616161u", "6_cp_async", "INCORRECT", "relative error"),
    Bug("byte_expansion", "q6k.cuh", "(low >> run.low_shift & 15)", "(low >> run.low_shift & 7)",
        "3_three_blocks", "INCORRECT", "relative error"),
    Bug("gate_never_opens", "q6k.cuh", ALIGNED, "return false &&", "5_wide_scales", "INVALID",
        "the witness is 1, not 2"),
    Bug("gate_always_open", "q6k.cuh", ALIGNED, "return true ||", "4_wide_loads", "INVALID", "misaligned", wide=False),
    Bug("plane_pieces_swapped", "7_expanded_plane.cu", "tile.q[place<4>(line + i * 64, piece)]",
        "tile.q[place<4>(line + i * 64, piece ^ 1)]", "7_expanded_plane", "INCORRECT", "relative error"),
    Bug("plane_transposed", "7_expanded_plane.cu", "blockIdx.y) * gridDim.x + s]", "s) * gridDim.y + blockIdx.y]",
        "7_expanded_plane", "INCORRECT", "relative error"),
)  # fmt: skip
# Only the host's fibers run in an order that is bound to show these.
RACES = (
    Bug("no_barrier", "2_double_buffer.cu", "acc);\n    __syncthreads();", "acc);",
        "2_double_buffer", "INCORRECT", "relative error"),
    Bug("copies_not_awaited", "7_expanded_plane.cu", "wait_copies<1>", "wait_copies<2>",
        "7_expanded_plane", "INCORRECT", "not deterministic"),
    Bug("slot_reused_too_early", "6_cp_async.cu", "(m + 2 < stages / 2) copy_weights(b.raw[m & 1], p, m + 2)",
        "(m + 2 < stages / 2) copy_weights(b.raw[(m + 1) & 1], p, m + 2)", "6_cp_async", "INCORRECT", "relative error"),
)  # fmt: skip
