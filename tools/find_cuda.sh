#!/usr/bin/env bash
# Finds what --device cuda needs, and prints it:
#
#   tools/find_cuda.sh compiler   the path of nvcc, 12.4 or later
#   tools/find_cuda.sh gpu        the name of a GPU with a driver, of compute
#                                 capability 8.0 or later
#
# Prints nothing and fails where it is not there. Of a driver without
# nvidia-smi it prints "NVIDIA GPU", and leaves its capability to the program.
set -euo pipefail

find_compiler() {
  local nvcc version
  nvcc=$(command -v "${CUDACXX:-nvcc}" || command -v /usr/local/cuda/bin/nvcc)
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  printf '12.4\n%s\n' "$version" | sort --check=quiet --version-sort
  echo "$nvcc"
}

find_gpu() {
  local found
  if command -v nvidia-smi >/dev/null; then
    # Read to its end: head would leave nvidia-smi to fail at the second GPU.
    found=$(nvidia-smi --query-gpu=compute_cap,name --format=csv,noheader |
      sed -n 1p)
    [[ "${found%%.*}" =~ ^[0-9]+$ && "${found%%.*}" -ge 8 ]]
    echo "${found#*, }"
  else
    [[ -e /dev/nvidia0 ]]
    /sbin/ldconfig -p | grep -q 'libcuda\.so\.1'
    echo "NVIDIA GPU"
  fi
}

case "${1:-}" in
  compiler) find_compiler 2>/dev/null ;;
  gpu) find_gpu 2>/dev/null ;;
  *) echo "usage: $0 compiler|gpu" >&2; exit 2 ;;
esac
