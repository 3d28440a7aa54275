#!/usr/bin/env bash
# Makes the wheel of the Python package of a build's library, installs it into an
# environment of its own, checks the types of the examples, and runs one of them
# and python/tests/, which run the other:
#
#   tests/python/python_package_test.sh BUILD SOURCE
#
# Skipped, loudly, where there is no Python 3.10 with venv and headers, or no
# package index.
set -euo pipefail

build=$1
source=$2
work=$build/python_package
python=${PYTHON:-python3}

skip() {
  echo "!!! SKIPPED: $1, so the Python package was not tested."
  exit 77
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  skip "no Python 3.10 or later"
"$python" -c 'import os, sysconfig, sys, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not os.path.exists(header))' ||
  skip "$python has no headers or no venv (python3-dev, python3-venv)"

mkdir -p "$work"
if [[ ! -x $work/venv/bin/mypy ]]; then
  rm -rf "$work/venv"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" --quiet --disable-pip-version-check install \
    'nanobind>=3.1,<4' 'nanobind-backend>=1,<2' 'scikit-build-core>=0.10' \
    pytest numpy mypy || {
    rm -rf "$work/venv"
    skip "pip could not install nanobind, pytest and mypy"
  }
  # Its results are compared with.
  "$work/venv/bin/pip" --quiet --disable-pip-version-check install ctranslate2 ||
    echo "!!! no ctranslate2: its results are not compared with"
fi
export PATH=$work/venv/bin:$PATH

rm -rf "$work/wheel"
LDFLAGS='' pip --quiet --disable-pip-version-check wheel "$source" \
  --no-build-isolation --no-deps --wheel-dir "$work/wheel" \
  --config-settings build-dir="$work/build" \
  --config-settings cmake.define.ESPALIER_PREBUILT="$build"
pip --quiet --disable-pip-version-check install --force-reinstall --no-deps \
  "$work"/wheel/espalier-*.whl

cd "$work" # not the source, whose package has no module
mypy --strict "$source"/python/examples/*.py
python "$source/python/examples/translate.py" "$source/models/en-fr"
ESPALIER_SOURCE_DIR=$source ESPALIER_PROGRAM=$build/bin/espalier \
  python -m pytest -q -p no:cacheprovider "$source/python/tests"
