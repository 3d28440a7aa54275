#!/usr/bin/env bash
# Installs, through apt, the packages that espalier is built with, and only
# those that are missing:
#
#   tools/install_dependencies.sh [program|tests|benchmarks|fuzz]...
#
# Without a group it installs the first three; the others build on program. fuzz
# has Clang, for the fuzz targets alone.
# When nothing is missing it asks dpkg once and is done: no root, no network.
# Otherwise it says what it installs and why, and uses sudo unless it is root.
# It installs and never removes: where apt would have to remove a package, it
# stops and leaves that decision to you.
#
# Known to Debian 12 and Ubuntu 24.04. Without dpkg it names the libraries and
# leaves their installation to you.
set -euo pipefail

# Boost.JSON and the parts of Asio we use need 1.81; the unversioned packages
# may be older. The first version that is installed, or on offer, is taken.
readonly boost_versions=(1.81 1.83 1.88 1.90)

# One line a package: its groups, its name and what we need it for. %BOOST% is
# the Boost version.
readonly packages="
program     g++                      the compiler
program     make                     runs the two commands
program     cmake                    configures the build
program     ninja-build              runs the build
program     ccache                   makes the next build fast
program     pkg-config               finds libraries without CMake files
program     libboost%BOOST%-dev      Boost.Asio: coroutines and timers
program     libboost-json%BOOST%-dev Boost.JSON: requests and configurations
program     libabsl-dev              Abseil: statuses
program     libsentencepiece-dev     tokenizers: tokenizer.model
program     libpcre2-dev             tokenizers: expressions of tokenizer.json
program     libutf8proc-dev          tokenizers: Unicode's normal forms
program     libsndfile1-dev          speech: files of audio
program     zlib1g-dev               speech: how far a text repeats itself
program     libcli11-dev             the command line
program     libhwy-dev               Highway: vector instructions
tests       libgtest-dev             GoogleTest
tests       libgmock-dev             GoogleMock
tests       librapidcheck-dev        RapidCheck: properties
tests       python3-dev              headers: the Python package
tests       python3-venv             an environment for it
benchmarks  libbenchmark-dev         Google Benchmark
fuzz        clang                    the compiler that has libFuzzer
fuzz        libclang-rt-dev          libFuzzer and the runtimes of sanitizers
"

# Prints the lines of the groups "$@", for Boost version $1.
lines_of_groups() {
  local boost=$1 group
  shift
  for group in "$@"; do
    if ! grep "^$group " <<<"${packages//%BOOST%/$boost}"; then
      echo "No group \"$group\"; there are program, tests, benchmarks, fuzz." >&2
      return 1
    fi
  done
}

names() { awk '{print $2}'; }

# Prints those of the packages "$@" that are installed, one a line.
installed() {
  { dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null ||
    true; } | sed -n 's/^installed //p'
}

# Prints those of the lines on stdin whose package is not installed.
missing() {
  local lines wanted here
  lines=$(cat)
  mapfile -t wanted < <(names <<<"$lines")
  here=" $(installed "${wanted[@]}" | tr '\n' ' ')"
  awk -v here="$here" 'index(here, " " $2 " ") == 0' <<<"$lines"
}

# Prints the Boost version that is installed, if one is.
installed_boost() {
  local version
  for version in "${boost_versions[@]}"; do
    if [[ "$(installed "libboost$version-dev" "libboost-json$version-dev" |
      wc -l)" == 2 ]]; then
      echo "$version"
      return
    fi
  done
}

# Prints the versions of Boost whose headers are installed, one a line: there
# is one at most, for they exclude each other.
installed_boost_headers() {
  installed 'libboost[0-9]*-dev' | sed -nE 's/^libboost([0-9.]+)-dev$/\1/p'
}

# Prints the first Boost version that apt offers, before all others one whose
# headers are here.
offered_boost() {
  local version here
  here=$(installed_boost_headers)
  for version in $here "${boost_versions[@]}"; do
    [[ " ${boost_versions[*]} " == *" $version "* ]] || continue
    if [[ -n "$(apt-cache madison "libboost-json$version-dev")" ]]; then
      echo "$version"
      return
    fi
  done
  echo "apt offers none of Boost ${boost_versions[*]}." >&2
  return 1
}

# Fails, saying why, if the headers of another version than $1 are installed.
check_boost_conflict() {
  local version
  for version in $(installed_boost_headers); do
    [[ "$version" != "$1" ]] || continue
    echo "libboost$1-dev, needed here, and libboost$version-dev, which is" \
      "installed, exclude each other." >&2
    echo "If nothing needs that one, let apt replace it, and try again:" \
      "sudo apt-get install libboost$1-dev libboost-json$1-dev" >&2
    return 1
  done
}

# Runs a command as root.
as_root() {
  if [[ $EUID == 0 ]]; then "$@"; else sudo "$@"; fi
}

# Installs what the lines name. `--no-remove`, because Boost's development
# packages exclude each other, and someone may need the one that is there.
install_lines() {
  local packages_to_install
  mapfile -t packages_to_install < <(names <<<"$1")
  echo "Installing what is missing to build espalier:"
  awk '{name = $2; $1 = $2 = ""; printf "  %-24s%s\n", name, $0}' <<<"$1"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-remove \
    --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    install "${packages_to_install[@]}"
}

main() {
  local groups=("$@") boost lines start=$SECONDS
  [[ $# -gt 0 ]] || groups=(program tests benchmarks)
  if ! command -v dpkg-query >/dev/null; then
    echo "No dpkg here. What is needed, by Debian's names:"
    lines_of_groups "${boost_versions[0]}" "${groups[@]}"
    return
  fi
  boost=$(installed_boost)
  lines=$(lines_of_groups "${boost:-none}" "${groups[@]}")
  lines=$(missing <<<"$lines")
  [[ -n "$lines" ]] || return 0

  if [[ $EUID != 0 ]] && ! command -v sudo >/dev/null; then
    echo "Packages are missing and there is no sudo. As root, run:" >&2
    echo "  tools/install_dependencies.sh ${groups[*]}" >&2
    return 1
  fi
  as_root apt-get -q update || echo "apt-get update failed; going on without."
  boost=${boost:-$(offered_boost)}
  check_boost_conflict "$boost"
  lines=$(lines_of_groups "$boost" "${groups[@]}")
  install_lines "$(missing <<<"$lines")"
  echo "Installed in $((SECONDS - start)) s."
}

main "$@" </dev/null
