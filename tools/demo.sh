#!/usr/bin/env bash
# The main job, shown: a few everyday sentences through the embedded
# translator, five beams wide, the three best translations of each; and the
# tree of one search, as a page for a browser:
#
#   tools/demo.sh [BUILD] [DEVICE]   build/release and cpu without
#
# Needs BUILD/bin/espalier; `make demo` builds it first.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
device=${2:-cpu}

# Prints a command as one would type it, then runs it.
run() {
  local word line=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9./_-]+$ ]] || word="\"$word\""
    line+=" $word"
  done
  printf '\n$%s\n' "$line"
  "$@"
}

espalier=("$build/bin/espalier" generate -m models/en-fr)
[[ $device == cpu ]] || espalier+=(--device "$device")
search=(--num-beams 5 --num-return-sequences 3 --figures)

run "${espalier[@]}" "${search[@]}" \
  "How old are you?" \
  "I lost my keys this morning." \
  "She is waiting for the bus." \
  "Can you help me, please?" \
  "We had a lot of fun last night."

run "${espalier[@]}" --from fr --to en "${search[@]}" \
  "Où est la gare ?" \
  "Il fait très froid aujourd'hui." \
  "Je n'ai pas envie de travailler."

# Pages of four tokens, so that a short prompt fills some for beams to share.
run "${espalier[@]}" --num-beams 5 --num-return-sequences 3 --page-size 4 \
  --trace "$build/demo.jsonl" "How old are you?"
run "$build/bin/espalier" trace "$build/demo.jsonl" --to html \
  -o "$build/demo.html"
printf '\nThe tree of that search is a page for your browser: %s\n' \
  "$PWD/$build/demo.html"
