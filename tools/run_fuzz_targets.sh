#!/usr/bin/env bash
# Runs fuzz targets (docs/fuzzing.md) that `cmake --build --preset fuzz` built:
#
#   tools/run_fuzz_targets.sh SECONDS [TARGET]...
#
# so many seconds each, all of them without a name, as many at a time as there
# are processors, and says how many inputs each had. They start from
# tests/fuzz/corpus/TARGET.tar, unpacked to build/fuzz/first/TARGET, and from
# what earlier runs found, which is kept in build/fuzz/corpus/TARGET. An input
# that breaks a law ends the run of its target and fails; it lies in
# build/fuzz/broken/TARGET then. With FUZZ_SEED runs make up the same inputs in
# the same order.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly programs=build/fuzz/fuzz sources=tests/fuzz
# A step of any target takes milliseconds.
readonly options=(-timeout=20 -rss_limit_mb=2048 -print_final_stats=1
  -seed="${FUZZ_SEED:-0}")  # 0: another each time

# Prints the longest input that libFuzzer makes up for target $1.
max_bytes() {
  case "$1" in
    tokenizer_json | tokenizer_model) echo 8192 ;;
    *) echo 2048 ;;
  esac
}

run_target() {
  local target=$1 seconds=$2 found=build/fuzz/corpus/$1
  local first=build/fuzz/first/$1
  local broken=build/fuzz/broken/$1 log=build/fuzz/$1.log
  local dictionary=$sources/dictionaries/$target.dict arguments=()
  rm -rf "$first"
  mkdir -p "$first" "$found" "$broken"
  tar -xf "$sources/corpus/$target.tar" -C "$first"
  [[ ! -f "$dictionary" ]] || arguments+=(-dict="$dictionary")
  if ! UBSAN_OPTIONS=print_stacktrace=1 "$programs/fuzz_$target" \
    "${options[@]}" -max_total_time="$seconds" -max_len="$(max_bytes "$target")" \
    -artifact_prefix="$broken/" "${arguments[@]}" \
    "$found" "$first" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "!!! $target: broken; the input lies in $broken" >&2
    return 1
  fi
  sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 inputs in \2 s/p' \
    "$log" | sed "s/^/$target: /"
}

main() {
  local seconds=$1 targets=("${@:2}") target
  if [[ ${#targets[@]} == 0 ]]; then
    for target in "$sources"/corpus/*.tar; do
      targets+=("$(basename "$target" .tar)")
    done
  fi
  if [[ ${#targets[@]} == 1 ]]; then
    run_target "${targets[0]}" "$seconds"
  else
    printf '%s\n' "${targets[@]}" |
      xargs -P "$(nproc)" -n 1 tools/run_fuzz_targets.sh "$seconds"
  fi
}

main "$@" </dev/null
