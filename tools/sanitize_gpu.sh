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
# the programs that `cmake --preset cuda` builds; where they are built with
# -DESPALIER_CUDA_LINEINFO=ON, reports name source lines. Of the environment:
#
#   BIN=build/cuda/bin  where the programs are
#   PROGRAMS=           those to run, instead of all
#   TESTS=*             which tests: patterns as gtest has them, with ':' between
#   SHARD=0/1           I/N: of these tests the I-th of N parts, from 0; each is
#                       in one part, the same whatever the tool and TESTS are
#   JOBS=$(nproc)       how many processes run at a time; of racecheck each takes
#                       2 GB of memory, some 8: fewer, where one is killed
#   LIMIT=1800          seconds for each tool; what has not ended then has failed
#   LOGS=               a folder to keep what programs and tools print
#   ESPALIER_FEW_CASES=0  goes through all cases of a test; by default through
#                       few (tests/few_cases.h), as a tool slows them 10 to 100
#                       times
#
# Each test that is slow under some tool runs in a process of its own, the
# slowest first (`slow_tests`); the others share processes. The table at the end
# counts the tests that gtest says have run, of all that the programs list; those
# that did not, as they say that there is nothing to test on this device, are
# named. The slowest of each tool are listed, to keep `slow_tests` up to date. On
# an H200 with 16 cores racecheck takes 135 s and 28 GB in all, memcheck and
# initcheck some 40 s each.
#
# What is not looked at, and why:
#
# - memcheck reports CUDA calls that return errors. The tests named in
#   `failing_calls` make such calls, to see that our code copes; they run like
#   all others, but without that report.
# - racecheck keeps gigabytes of what attention and products of few rows do in
#   shared memory, if they belong to a whole model. It looks at these kernels
#   where they are tested by themselves, in kernels_gpu_test. (It takes minutes
#   over clusters, too, but fails if it is to leave those out.)
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
readonly script=tools/sanitize_gpu.sh  # from here

readonly failing_calls=CudaGpuTest.OutOfMemoryIsAStatusAndTheDeviceGoesOn:\
CudaGpuTest.AnOrdinalThatIsNotThereIsRefused:\
CudaGpuTest.AScopeOfADeviceThatIsNotThereIsRefused:\
CudaExecutorMemoryTest.DrawnBeamsWithoutMemoryEndAlone:\
CudaTransformerTest.WhatTheDeviceCannotDoIsNamed
# Products of 16 bits and more than 16 rows, or tests that cannot be parted from
# those: bf16 and f16 are the first twenty of CudaMatMulSizesGpuTest.
readonly many_rows_of_16_bits='CudaMatMulGpuTest.*:Sizes/*/?:Sizes/*/1?:'\
'CudaTransformerTest.SixteenBits*:CudaTransformerTest.RandomWeights*:'\
'CudaFamiliesTest.SixteenBits*:'\
'*/CudaExecutorDTypeTest.*'
readonly own='--kernel-name kernel_substring=8espalier'

# Kernels that racecheck leaves out of whole models.
readonly only_by_themselves='--kernel-name-exclude kernel_substring=Attend '\
'--kernel-name-exclude kernel_substring=SkinnyMatMul'

# Those that take 20 s and more under some tool, slowest first.
readonly slow_tests=(
  'CudaTransformerTest.MatchesTheTwin*'
  '*/CudaExecutorDTypeTest.SixteenBit*'
  '*/CudaSelectTest.GroupsAreTheSame*'
  'CudaExecutorTest.EveryHypothesis*'
  '*/CudaSpeculationTest.TokensAre*'
  '*/CudaMixtureTest.*'
  'CudaHistoryTest.*'
  'CudaExecutorTest.RequestsWait*'
  'CudaExecutorTest.Cancelling*'
  'CudaExecutorTest.EveryStrategy*'
  'CudaExecutorTest.Chunks*'
  'CudaExecutorTest.RequestsAlone*'
  'CudaExecutorTest.RequestsOfLikeWidths*'
  '*/CudaSelectTest.EqualsTheTwinIn*'
  'CudaExecutorChoiceTest.EveryKind*'
  'CudaTransformerTest.SixteenBits*'
  'CudaMatMulGpuTest.WhatIsAddedLater*'
  'CudaTransformerTest.LogProbs*'
  'CudaMatMulGpuTest.ARowHasTheSameBits*'
  'CudaMatMulGpuTest.Chains*'
  '*/CudaSelectTest.EqualsTheTwinInGroups*'
  '*/CudaSelectTest.ARowIsTheSameInACluster*'
  'CudaSampleEdgesTest.ADrawDoes*'
  '*/CudaSampleTest.ADrawDoes*'
  'DeviceGpuTest.*'
  'CudaExecutorTest.WideBeams*'
  'CudaExecutorFaultsTest.*'
  'CudaExecutorTest.Mixtures*'
  '*/CudaSampleTest.DrawsFollow*'
  '*/CudaAttentionTest.*Dim256*'
  '*/CudaAttentionOptionsTest.*Dim256*'
  '*/CudaSelectTest.EqualsTheTwinOnSmallRows*'
)
# So many of the others share a process.
readonly tests_per_process=5

read -ra programs <<<"${PROGRAMS:-executor_gpu_test cli_gpu_test model_gpu_test \
kernels_gpu_test base_gpu_test}"
export BIN=${BIN:-build/cuda/bin} ESPALIER_FEW_CASES=${ESPALIER_FEW_CASES:-1}
readonly JOBS=${JOBS:-$(nproc)} LIMIT=${LIMIT:-1800}
readonly TESTS=${TESTS:-*} SHARD=${SHARD:-0/1}

# Whether TESTS and SHARD leave a test.
is_wanted() {
  local pattern sum
  local -a patterns
  IFS=: read -ra patterns <<<"$TESTS"
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ $1 == $pattern ]] || continue
    sum=$(cksum <<<"$1")
    ((${sum%% *} % ${SHARD#*/} == ${SHARD%/*}))
    return
  done
  return 1
}

# The names of the tests of a program that a filter leaves, a line each.
list_tests() {
  local test tests
  tests=$("$BIN/$1" --gtest_list_tests --gtest_filter="$2" 2>/dev/null) ||
    return
  while read -r test; do
    if is_wanted "$test"; then echo "$test"; fi
  done < <(awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}' <<<"$tests")
}

# What gtest printed of tests that ended in one of these ways.
ended() {
  grep -E "^\[ +($1) +\] .* \([0-9]+ ms\)\$" "$2"
}

# The names of tests that ended so, without gtest's parameters.
names_of() {
  ended "$1" "$2" | sed -E 's/.*\] ([^ ,]+).*/\1/' || true
}

# Of which tests a process tells: those that failed, else the one that it was
# in, else all of its own.
#   blamed STATUS OUTPUT TESTS
blamed() {
  local names
  names=$(names_of FAILED "$2")
  if [[ -z "$names" && $1 != 0 ]]; then
    names=$(sed -nE 's/^\[ RUN +\] (.*)/\1/p' "$2" | tail -n 1)
  fi
  [[ -n "$names" ]] || names=${3//:/ }
  echo "${names//$'\n'/ }"
}

# Runs one process and writes LOGS/TOOL.NAME.result: how many tests have run,
# reports, and in a few words what is wrong, if anything.
#   run_process TOOL NAME PROGRAM TESTS [OPTION]...
# SLOT numbers the processes that run now: each has ports of its own.
run_process() {
  local tool=$1 name=$2 program=$3 tests=$4
  shift 4
  local log=$LOGS/$tool.$name left=$((DEADLINE - $(date +%s))) status=""
  local reports theirs ran failed wrong=""
  : >"$log.out"
  : >"$log.report"
  if [[ $left -gt 0 ]]; then
    GTEST_FILTER=$tests timeout --kill-after=5 "$left" \
      compute-sanitizer --tool "$tool" --port $((49152 + 16 * SLOT)) \
      --launch-timeout 60 --print-limit 100 --log-file "$log.report" "$@" \
      "$BIN/$program" >"$log.out" 2>&1 </dev/null && status=0 || status=$?
  fi
  ran=$(ended "OK|FAILED|SKIPPED" "$log.out" | wc -l) || true
  failed=$(ended FAILED "$log.out" | wc -l) || true
  reports=$(sed -nE 's/^=+ (ERROR|RACECHECK) SUMMARY: ([0-9]+) .*/\2/p' \
    "$log.report" | awk '{sum += $1} END {if (NR > 0) print sum}')
  theirs=$(grep -E '^=+ [A-Za-z]+: Race reported ' "$log.report" |
    grep -v espalier | grep -cE 'nvjet|xmma|cublas|cutlass') || true
  [[ -z "$reports" ]] || reports=$((reports - theirs))
  if [[ -z "$status" ]]; then
    wrong="not started, for lack of time"
  elif [[ $status == 124 ]]; then
    wrong="did not end"
  elif [[ $status == 137 || $status == 9 ]]; then
    wrong="was killed"
  elif [[ -z "$reports" ]]; then
    wrong="the tool gave up"
  elif [[ $failed -gt 0 ]]; then
    wrong="$failed tests failed, $reports reports"
  elif [[ $reports -gt 0 ]]; then
    wrong="$reports reports"
  elif [[ $status -ne 0 ]]; then
    wrong="exit code $status"
  fi
  echo "$ran ${reports:-0} $wrong" >"$log.result"
  [[ -z "$wrong" ]] ||
    echo "$tool, $(blamed "${status:-0}" "$log.out" "$tests"): $wrong"
}

# Where a test stands among the slow ones; after all of them if it is not slow.
rank_of() {
  local i
  for i in "${!slow_tests[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ $1 != ${slow_tests[i]} ]] || break
    ((i += 1))
  done
  echo "$i"
}

# A rank and the arguments of run_process, a line each process, for the tests
# that a filter leaves: list_filtered TOOL SUFFIX GTEST_FILTER [OPTION]...
list_filtered() {
  local tool=$1 suffix=$2 filter=$3 program test tests rank
  local -i count total i j
  local -a others options
  shift 3
  for program in "${programs[@]}"; do
    count=0 others=() options=("$@")
    # shellcheck disable=SC2206  # words
    [[ $tool != racecheck || $program == kernels_gpu_test ]] ||
      options+=($only_by_themselves)
    while read -r test; do
      rank=$(rank_of "$test")
      if ((rank < ${#slow_tests[@]})); then
        echo "$rank $tool $program$suffix.$((count++)) $program $test" \
          "${options[@]}"
      else
        others+=("$test")
      fi
    done < <(list_tests "$program" "$filter")
    total=$(((${#others[@]} + tests_per_process - 1) / tests_per_process))
    for ((i = 0; i < total; ++i)); do
      # Neighbours, which take as long, go to different ones.
      tests=""
      for ((j = i; j < ${#others[@]}; j += total)); do
        tests+=:${others[j]}
      done
      echo "${#slow_tests[@]} $tool $program$suffix.$((count++)) $program" \
        "${tests#:}" "${options[@]}"
    done
  done
}

list_processes() {
  # shellcheck disable=SC2086  # options are words
  case "$1" in
    memcheck)
      list_filtered "$1" "" "-$failing_calls"
      list_filtered "$1" .calls "$failing_calls" --report-api-errors no ;;
    racecheck)
      # Else what waits to be looked at outgrows memory.
      local bounded='--racecheck-num-workers 2 --force-synchronization-limit 1'
      list_filtered "$1" .16bits "$many_rows_of_16_bits" $bounded
      list_filtered "$1" "" "-$many_rows_of_16_bits" $own $bounded ;;
    initcheck) list_filtered "$1" "" "*" ;;
    synccheck) list_filtered "$1" "" "*" $own ;;
  esac
}

# What a tool's processes left out, and what took long.
print_times() {
  local tool=$1
  names_of SKIPPED <(cat "$LOGS/$tool".*.out) |
    sed "s/^/$tool, left out as there is nothing to test on this device: /"
  echo "$tool, slowest tests (ms):"
  ended "OK|FAILED" <(cat "$LOGS/$tool".*.out) |
    sed -E 's/.*\] ([^ ,]+).* \(([0-9]+) ms\)/\2 \1/' | sort -rn |
    sed 8q || true
}

if [[ "${1:-}" == --process ]]; then
  shift
  run_process "$@"
  exit
fi

if [[ $# == 0 ]]; then
  set -- memcheck racecheck initcheck synccheck
fi
for tool in "$@"; do
  [[ "$tool" =~ ^(mem|race|init|sync)check$ ]] ||
    { sed -n '2,/^set/{/^#/s/^# \?//p}' "$script" >&2; exit 2; }
done
[[ $SHARD =~ ^[0-9]+/[1-9][0-9]*$ && ${SHARD%/*} -lt ${SHARD#*/} ]] ||
  { echo "SHARD must be I/N with I below N, got $SHARD" >&2; exit 2; }
command -v compute-sanitizer >/dev/null ||
  { echo "compute-sanitizer is not on the PATH" >&2; exit 1; }
for program in "${programs[@]}"; do
  [[ -x "$BIN/$program" ]] ||
    { echo "no $BIN/$program: cmake --build --preset cuda" >&2; exit 1; }
  tests=$(list_tests "$program" "*" | wc -l) ||
    { "$BIN/$program" --gtest_list_tests >&2; exit 1; }
  num_tests=$((${num_tests:-0} + tests))
done
((num_tests > 0)) ||
  { echo "no test of ${programs[*]} is in TESTS=$TESTS SHARD=$SHARD" >&2
    exit 1; }

if [[ -z "${LOGS:-}" ]]; then
  LOGS=$(mktemp -d -t sanitize_gpu.XXXXXX)
  trap 'rm -rf "$LOGS"' EXIT
fi
mkdir -p "$LOGS"
export LOGS
for tool in "$@"; do
  rm -f "$LOGS/$tool".*.{out,report,result}
done

table=$(printf '%-10s %6s %9s %10s %8s %8s' tool tests processes 'not clean' \
  reports seconds)
failed=0
for tool in "$@"; do
  start=$SECONDS
  DEADLINE=$(($(date +%s) + LIMIT))
  export DEADLINE
  list_processes "$tool" | sort -sn | cut -d ' ' -f 2- |
    xargs -P "$JOBS" --process-slot-var=SLOT -L 1 "$script" --process
  row=$(cat "$LOGS/$tool".*.result | awk -v of="$num_tests" -v tool="$tool" \
    -v seconds=$((SECONDS - start)) '
      {ran += $1; reports += $2; bad += NF > 2}
      END {printf "%-10s %3d/%d %9d %10d %8d %8d", tool, ran, of, NR, bad,
           reports, seconds; exit bad > 0 || ran != of}') || failed=1
  table+=$'\n'$row
  print_times "$tool"
done
printf '\n%s\n' "$table"
[[ "$TESTS$SHARD" == "*0/1" ]] ||
  echo "Left out: all tests but those of TESTS=$TESTS SHARD=$SHARD."
[[ "$ESPALIER_FEW_CASES" != 1 ]] ||
  echo "Left out: most cases of each test; ESPALIER_FEW_CASES=0 runs all."
exit "$failed"
