#!/usr/bin/env bash
# Records the reports of this folder on one GPU of compute capability 9.0. Usage: record.sh OUTDIR
# Runs from a copy in a neutral folder, so that a report names no path of the recording machine; leaves the clocks alone.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
work=/tmp/cyinst
rm -rf "$work" && mkdir -p "$work"
cp -r "$here" "$work/kernels"
cd "$work"
books="--section WarpStateStats --section SchedulerStats --section SpeedOfLight --section InstructionStats --section Occupancy --section LaunchStats"
samples="--metrics group:smsp__pcsamp_warp_stall_reasons,group:smsp__pcsamp_warp_stall_reasons_not_issued,inst_executed"
record() {
  specimen=$1
  tokens=$2
  shift 2
  filters=$(python3 -c "from profiler.loading import resolve
spec = resolve('kernels/$specimen').specimen
print(' '.join(f'--nvtx-include cyinst@{spec.name}.{v.name}/' for v in spec.variants))")
  # shellcheck disable=SC2086
  ncu --clock-control none --nvtx $filters --import-source yes -f -o "$specimen.$tokens.sm90" $books "$@" \
    python3 -m profiler.cli launch "kernels/$specimen" --shape "tokens=$tokens" --warmup 2 >"$specimen.$tokens.log" 2>&1 || { tail -5 "$specimen.$tokens.log"; return 1; }
  cp "$specimen.$tokens.sm90.ncu-rep" "$out/"
}
for specimen in q6k q4k; do
  # shellcheck disable=SC2086
  record $specimen 2630 $samples
  record $specimen 512
  record $specimen 4096
done
