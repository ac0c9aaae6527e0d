"""The example of docs/python.md, run by `make docs`."""

from pathlib import Path

import profiler

DEMO = Path(__file__).resolve().parent.parent / "profiler" / "demo"

before = profiler.load(DEMO / "q6k_byte_loads.sm90.ncu-rep")
after = profiler.load(DEMO / "q6k_wide_loads.sm90.ncu-rep")
books = profiler.account(before.launches[0], work=profiler.Work.gemm(2630, 3584, 3584))
print(books.bound.sentence)
print(books.to_frame().query("group == 'per work'")[["name", "value", "unit"]].to_string(index=False))

change = profiler.compare(before, after)
print(change.sentence)
largest = change.to_frame().sort_values("delta_ns").head(3)
print(largest[["factor", "detail", "delta_ns", "share_pct"]].round(1).to_string(index=False))
