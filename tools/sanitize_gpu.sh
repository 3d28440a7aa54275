#!/usr/bin/env bash
# Runs every test that needs a GPU under NVIDIA's compute-sanitizer, and fails
# if a tool finds something, a test fails or a process does not end:
#
#   tools/sanitize_gpu.sh [memcheck] [racecheck] [initcheck] [synccheck]
#
#   memcheck   accesses out of bounds or misaligned, and CUDA calls that fail
#   racecheck  threads of a block that race for shared memory
#   initcheck  reads of device memory that nothing has written
#   synccheck  barriers that not all of their threads reach
#
# All four if none is named. It needs a GPU, compute-sanitizer (part of CUDA) and
# the programs that `cmake --preset cuda` builds. Of the environment:
#
#   BIN=build/cuda/bin  where the programs are
#   PROGRAMS=           those to run, instead of all
#   JOBS=$(nproc)       how many of them run at a time
#                       (racecheck of a whole model takes gigabytes of memory
#                       each: fewer, where the system kills one)
#   LIMIT=1800          seconds for each tool; what has not ended then has failed
#   LOGS=               a folder to keep what programs and tools print
#   ESPALIER_FEW_CASES=0  goes through all cases of a test; by default through
#                       few (tests/few_cases.h), as a tool slows them 10 to 100
#                       times
#
# Each program runs in many processes, its tests divided among them by gtest
# (GTEST_TOTAL_SHARDS), the slowest program first. The table at the end counts
# the tests that gtest says have run, of all that the programs list.
#
# What is not looked at, and why:
#
# - memcheck reports CUDA calls that return errors. The tests named in
#   `failing_calls` make such calls, to see that our code copes; they run like
#   all others, but without that report.
# - racecheck and synccheck look at our own kernels (namespace espalier) alone.
#   But racecheck breaks cuBLASLt's kernels for 16-bit numbers if it looks at
#   others only. So in the tests of `many_rows_of_16_bits` it looks at all
#   kernels, and races within cuBLASLt's are not counted: they are not ours to
#   judge.
# - initcheck does not see stores through the copy engine (cp.async.bulk), which
#   cuBLASLt makes for 16-bit products and parts of sums on compute capability
#   9.0. CudaMatMul zeroes the scratch that they go to, so that readers of it are
#   not reported; that they read nothing but what was written are the laws of
#   CudaMatMulGpuTest.NothingOldInScratchReachesGatesAndUps and
#   WhatIsAddedLaterMakesTheProduct.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly failing_calls=CudaGpuTest.OutOfMemoryIsAStatusAndTheDeviceGoesOn:\
CudaGpuTest.AnOrdinalThatIsNotThereIsRefused:\
CudaLlamaTest.WhatTheDeviceCannotDoIsNamed
# Products of 16 bits and more than 16 rows, or tests that cannot be parted from
# those: bf16 and f16 are the first twenty of CudaMatMulSizesGpuTest.
readonly many_rows_of_16_bits='CudaMatMulGpuTest.*:Sizes/*/?:Sizes/*/1?:'\
'CudaLlamaTest.SixteenBits*:CudaLlamaTest.RandomWeights*:'\
'CudaExecutorTest.SixteenBitModels*:'\
'DeviceGpuTest.FiguresSayWhatTheDeviceDid'
readonly own='--kernel-name kernel_substring=8espalier'

# Slowest first.
read -ra programs <<<"${PROGRAMS:-executor_gpu_test cli_gpu_test model_gpu_test \
kernels_gpu_test base_gpu_test}"
export BIN=${BIN:-build/cuda/bin} ESPALIER_FEW_CASES=${ESPALIER_FEW_CASES:-1}
readonly JOBS=${JOBS:-$(nproc)} LIMIT=${LIMIT:-1800}

# How many tests of a program a filter leaves.
count_tests() {
  "$BIN/$1" --gtest_list_tests --gtest_filter="$2" 2>/dev/null | grep -c '^  '
}

# Runs one process and writes LOGS/TOOL.NAME.result: how many tests have run,
# reports, seconds, and in a few words what is wrong, if anything.
#   run_shard TOOL NAME PROGRAM INDEX TOTAL GTEST_FILTER [OPTION]...
# SLOT numbers the processes that run now: each has ports of its own.
run_shard() {
  local tool=$1 name=$2 program=$3 index=$4 total=$5 filter=$6
  shift 6
  local log=$LOGS/$tool.$name left=$((DEADLINE - $(date +%s))) status=124
  local reports theirs ran failed wrong=""
  touch "$log.out" "$log.report"
  if [[ $left -gt 0 ]]; then
    GTEST_TOTAL_SHARDS=$total GTEST_SHARD_INDEX=$index GTEST_FILTER=$filter \
      timeout --kill-after=5 "$left" compute-sanitizer --tool "$tool" \
      --port $((49152 + 16 * SLOT)) --launch-timeout 60 --print-limit 100 \
      --log-file "$log.report" "$@" "$BIN/$program" \
      >"$log.out" 2>&1 </dev/null && status=0 || status=$?
  fi
  # Names of tests come with a time at their ends only.
  ran=$(grep -cE '^\[ +(OK|FAILED) +\] .*\([0-9]+ ms\)$' "$log.out") || true
  failed=$(grep -cE '^\[ +FAILED +\] .*\([0-9]+ ms\)$' "$log.out") || true
  reports=$(sed -nE 's/^=+ (ERROR|RACECHECK) SUMMARY: ([0-9]+) .*/\2/p' \
    "$log.report" | awk '{sum += $1} END {if (NR > 0) print sum}')
  theirs=$(grep -E '^=+ [A-Za-z]+: Race reported ' "$log.report" |
    grep -v espalier | grep -cE 'nvjet|xmma|cublas|cutlass') || true
  [[ -z "$reports" ]] || reports=$((reports - theirs))
  if [[ $status == 124 || $status == 137 ]]; then
    wrong="did not end"
  elif [[ -z "$reports" ]]; then
    wrong="the tool gave up"
  elif [[ $failed -gt 0 ]]; then
    wrong="$failed tests failed, $reports reports"
  elif [[ $reports -gt 0 ]]; then
    wrong="$reports reports"
  elif [[ $status -ne 0 ]]; then
    wrong="exit code $status"
  fi
  echo "$ran ${reports:-0} $SECONDS $wrong" >"$log.result"
  [[ -z "$wrong" ]] || echo "$tool, $name of $total: $wrong"
}

# The arguments of run_shard, a line each process, for the tests that a filter
# leaves: list_filtered TOOL SUFFIX GTEST_FILTER [OPTION]...
list_filtered() {
  local tool=$1 suffix=$2 filter=$3 program tests total index
  shift 3
  for program in "${programs[@]}"; do
    tests=$(count_tests "$program" "$filter") || continue
    total=$((tests < 3 * JOBS ? tests : 3 * JOBS))
    for ((index = 0; index < total; ++index)); do
      echo "$tool $program$suffix.$index $program $index $total $filter" "$@"
    done
  done
}

list_shards() {
  # shellcheck disable=SC2086  # options are words
  case "$1" in
    memcheck)
      list_filtered "$1" "" "-$failing_calls"
      list_filtered "$1" .calls "$failing_calls" --report-api-errors no ;;
    racecheck)
      # Else what waits to be looked at outgrows memory sooner.
      local bounded='--racecheck-num-workers 2 --force-synchronization-limit 16'
      list_filtered "$1" .16bits "$many_rows_of_16_bits" $bounded
      list_filtered "$1" "" "-$many_rows_of_16_bits" $own $bounded ;;
    initcheck)
      list_filtered "$1" "" "*" ;;
    synccheck) list_filtered "$1" "" "*" $own ;;
  esac
}

if [[ "${1:-}" == --shard ]]; then
  shift
  run_shard "$@"
  exit
fi

if [[ $# == 0 ]]; then
  set -- memcheck racecheck initcheck synccheck
fi
for tool in "$@"; do
  [[ "$tool" =~ ^(mem|race|init|sync)check$ ]] ||
    { sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2; exit 2; }
done
command -v compute-sanitizer >/dev/null ||
  { echo "compute-sanitizer is not on the PATH" >&2; exit 1; }
for program in "${programs[@]}"; do
  [[ -x "$BIN/$program" ]] ||
    { echo "no $BIN/$program: cmake --build --preset cuda" >&2; exit 1; }
  tests=$(count_tests "$program" "*") ||
    { "$BIN/$program" --gtest_list_tests >&2; exit 1; }
  num_tests=$((${num_tests:-0} + tests))
done

if [[ -z "${LOGS:-}" ]]; then
  LOGS=$(mktemp -d -t sanitize_gpu.XXXXXX)
  trap 'rm -rf "$LOGS"' EXIT
fi
mkdir -p "$LOGS"
export LOGS
rm -f "$LOGS"/*.result

table=$(printf '%-10s %6s %9s %10s %8s %8s' tool tests processes 'not clean' \
  reports seconds)
failed=0
for tool in "$@"; do
  start=$SECONDS
  DEADLINE=$(($(date +%s) + LIMIT))
  export DEADLINE
  list_shards "$tool" | xargs -P "$JOBS" --process-slot-var=SLOT -L 1 \
    "$0" --shard
  row=$(cat "$LOGS/$tool".*.result | awk -v of="$num_tests" -v tool="$tool" \
    -v seconds=$((SECONDS - start)) '
      {ran += $1; reports += $2; bad += NF > 3}
      END {printf "%-10s %3d/%d %9d %10d %8d %8d", tool, ran, of, NR, bad,
           reports, seconds; exit bad > 0 || ran != of}') || failed=1
  table+=$'\n'$row
done
printf '\n%s\n' "$table"
exit "$failed"
