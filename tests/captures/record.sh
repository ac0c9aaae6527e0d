#!/usr/bin/env bash
# Records every report of this folder on one GPU of compute capability 9.0. Usage: record.sh OUTDIR
# Builds in a neutral folder, so that a report names no path of the recording machine; leaves the clocks alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
work=/tmp/cyinst
mkdir -p "$work"
cp "$here/fixture.cu" "$work/"
cd "$work"
nvcc -O3 -lineinfo -arch=sm_90a -std=c++17 -o fixture fixture.cu -ldl
books="--section WarpStateStats --section SchedulerStats --section SpeedOfLight --section InstructionStats --section Occupancy --section LaunchStats --section SourceCounters"
run() {
  name=$1
  scenario=$2
  shift 2
  ncu --clock-control none -f -o "$name.sm90" "$@" ./fixture "$scenario" >"$name.log" 2>&1 || { tail -5 "$name.log"; return 1; }
  cp "$name.sm90.ncu-rep" "$out/"
}
# shellcheck disable=SC2086
{
  run kinds kinds --nvtx --import-source yes $books
  run basic many
  run cache_none kinds --cache-control none -c 1 $books
  run application_replay kinds --replay-mode application -c 1 --section SchedulerStats --section SpeedOfLight
  run range_replay ranges --replay-mode range --nvtx --nvtx-include "step/" --section SpeedOfLight
  run graph graph --graph-profiling graph --section SpeedOfLight
  run samples_only kinds -c 1 --section SourceCounters
  run states_only kinds -c 1 --section WarpStateStats
  run duration_only kinds -c 2 --metrics gpu__time_duration.sum
}
