"""Functions that can be imported, for profile()."""

from stage import did, launch


def step(size, times=1):
    did(f"step {size}")
    for _ in range(times):
        launch("saxpy")


def other(out=None):
    launch("widths")
