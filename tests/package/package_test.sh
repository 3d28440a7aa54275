#!/usr/bin/env bash
# Installs what was built to a scratch directory, moves it, and builds and runs
# tests/consumer/ on what is there: by find_package, with the shared and the
# static library, and by pkg-config.
#
#   tests/package/package_test.sh BUILD_DIR CXX VERSION [cuda]
#
# CXX is the compiler of the build. With "cuda" the build is one for GPUs.
set -euo pipefail
readonly build=$1 cxx=$2 version=$3 cuda=${4:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
readonly source consumer=$source/tests/consumer
scratch=$(mktemp -d)
readonly scratch prefix=$scratch/moved
trap 'rm -rf "$scratch"' EXIT
export CXX=$cxx

section() { printf '=== %s (after %d s)\n' "$1" "$SECONDS"; }
fail() { echo "package_test: $*" >&2; exit 1; }

readonly expected=' -0.0864  Où se trouve la gare ?
 -0.3720  Où est la gare ?
INVALID_ARGUMENT: num_beams must be at least 1, got 0'
check_run() {  # the program, and what runs it
  local out
  out=$("$@" "$source/models/en-fr")
  [[ "$out" == "$expected" ]] || fail "$* printed: $out"
}

section "install"
cmake --install "$build" --prefix "$scratch/installed" >"$scratch/log" ||
  fail "$(cat "$scratch/log")"
# No path of the build's prefix is in what was installed.
mv "$scratch/installed" "$prefix"
lib=$(dirname "$(find "$prefix" -name libespalier.a)")
readonly lib so=$lib/libespalier.so
[[ "$("$prefix/bin/espalier" --version)" == *"$version"* ]] ||
  fail "bin/espalier --version"

section "headers"
[[ "$(ls "$prefix/include")" == espalier ]] || fail "$(ls "$prefix/include")"
# Headers of ours include each other by names below espalier/.
if grep -rnE '#include "(base|batcher|beam|exec_request|executor|kernels|model|pages|request|speech|text|trace)/' \
    "$prefix/include"; then
  fail "included by a name that is not installed"
fi
# A macro is everybody's: ours have our name.
if find "$prefix/include" -name '*.h' -print0 |
    xargs -0 grep -nE '^ *# *define ' | grep -vE 'define +ESPALIER_' ; then
  fail "a macro without our prefix in a public header"
fi

# The example of a header is part of the consumer, which compiles it.
while read -r line; do
  sed 's/^ *//' "$consumer/main.cc" | grep -xF -e "$line" >/dev/null ||
    fail "defaults.h has an example that the consumer lacks: $line"
done < <(sed -n 's|^//   *||p' "$prefix/include/espalier/defaults.h" |
  sed -n '/LoadModelDefaults/,$p')

section "symbols"
nm -DC --defined-only "$so" | cut -c 18- >"$scratch/exported"
grep '^[uV] boost::asio::detail::' \
  <(nm -C --defined-only "$lib/libespalier.a" | cut -c 18-) |
  sort -u >"$scratch/state" || true
grep -q 'call_stack.*::top_$' "$scratch/state" || fail "no state of Asio's"
if hidden=$(grep -vxFf "$scratch/exported" "$scratch/state"); then
  fail "state of Asio's that programs would have a second one of: $hidden"
fi
if grep -E 'espalier::(Scheduler|SequenceGroup|PagePool|TransformerPass|reference)\b' \
    "$scratch/exported"; then
  fail "exported, and no part of the API"
fi
for name in 'Engine::Generate(' 'Tokenizer::Load(' 'TransformerModel::Load('; do
  grep -qF "T espalier::$name" "$scratch/exported" || fail "no $name exported"
done

for kind in shared static; do
  section "find_package: $kind"
  cmake -S "$consumer" -B "$scratch/$kind" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCONSUMER_COMPONENTS="$kind${cuda:+;$cuda}" -DCMAKE_CXX_FLAGS=-O0 \
    >"$scratch/log"
  cmake --build "$scratch/$kind" -j "$(nproc)" >"$scratch/log" ||
    fail "$(cat "$scratch/log")"
  check_run "$scratch/$kind/consumer"
  [[ "$("$scratch/$kind/threads" "$source/models/en-fr")" == \
    'Où se trouve la gare ?'* ]] || fail "threads"
  if [[ -n "$cuda" ]]; then
    "$scratch/$kind/cuda_consumer" "$source/models/en-fr"
  fi
done
# By way of files: grep -q would end ldd by a signal, and pipefail see it.
for kind in shared static; do
  ldd "$scratch/$kind/consumer" >"$scratch/$kind.libraries"
done
grep -q libespalier.so "$scratch/shared.libraries" || fail "not shared"
! grep libespalier.so "$scratch/static.libraries" || fail "not static"

section "pkg-config"
export PKG_CONFIG_PATH=$lib/pkgconfig
[[ "$(pkg-config --modversion espalier)" == "$version" ]] || fail "modversion"
# shellcheck disable=SC2046
"$cxx" -std=c++20 -O0 $(pkg-config --cflags espalier) -c "$consumer/main.cc" \
  -o "$scratch/main.o"
# shellcheck disable=SC2046
"$cxx" "$scratch/main.o" $(pkg-config --libs espalier) -o "$scratch/by_name"
check_run env LD_LIBRARY_PATH="$lib" "$scratch/by_name"
libs=$(pkg-config --static --libs espalier)
# shellcheck disable=SC2086
"$cxx" "$scratch/main.o" ${libs/-lespalier/-l:libespalier.a} \
  -o "$scratch/by_name_static"
check_run "$scratch/by_name_static"

# The library again, configured for folders that are no part of the prefix.
section "absolute folders"
readonly absolute=$scratch/absolute
cmake -S "$source" -B "$absolute" -DCMAKE_INSTALL_PREFIX="$scratch/prefix" \
  -DCMAKE_INSTALL_LIBDIR="$scratch/apart/lib" \
  -DCMAKE_INSTALL_INCLUDEDIR="$scratch/apart/include" \
  -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_EXAMPLES=OFF >"$scratch/log" ||
  fail "$(cat "$scratch/log")"
cp -a "$build/lib" "$absolute"
cmake --install "$absolute" >"$scratch/log" || fail "$(cat "$scratch/log")"
export PKG_CONFIG_PATH=$scratch/apart/lib/pkgconfig
for name in libdir:lib includedir:include; do
  [[ "$(pkg-config --variable="${name%:*}" espalier)" == \
    "$scratch/apart/${name#*:}" ]] || fail "pkg-config: $name"
done
cmake -S "$consumer" -B "$scratch/apart/build" -DCMAKE_CXX_FLAGS=-O0 \
  -DCMAKE_PREFIX_PATH="$scratch/apart" >"$scratch/log"
cmake --build "$scratch/apart/build" --target threads >"$scratch/log" ||
  fail "$(cat "$scratch/log")"
"$scratch/apart/build/threads" "$source/models/en-fr" >"$scratch/log" ||
  fail "threads of absolute folders: $(cat "$scratch/log")"

section "done"
