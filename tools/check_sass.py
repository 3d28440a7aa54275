#!/usr/bin/env python3
"""Checks in the machine code of every kernel what base/grid_dependency.h and
base/cuda_launch.cuh ask of it:

    tools/check_sass.py [BUILD]      build/cuda without

Needs cuobjdump and nvdisasm of the CUDA toolkit on PATH, and no GPU. Of code
for compute capability 9.0 it checks that every kernel

  - waits (ACQBULK, griddepcontrol.wait);
  - reads nothing with ld.global.nc (LDG...CONSTANT);
  - writes no global memory ahead of its wait, and reads some only if it is
    declared to read early, or reads constants, in the lists below;
  - lets the next kernel start (PREEXIT) after its wait if it is a barrier.

"Ahead" is by address, which is how the compiler lays out code that runs once.
"""

import pathlib
import re
import subprocess
import sys

# By GridDependency, as their launches declare it.
BARRIERS = {
    "NormRow<EmbeddedRow>", "NormResidualRow<EmbeddedTokenRow>",
    "AddGumbelNoise",
}
READ_EARLY = {
    "RotateAndStore", "Attend", "Merge", "ReadTiles", "SelectGroups",
    "MergeGroups", "DrawRows", "CutRows", "DrawInClusters", "JudgeDrafts",
}
# Weights.
READ_CONSTANTS = {"NormRow", "NormRow<EmbeddedRow>", "FinishHeads",
                  "SkinnyMatMulKernel", "MultiplyGated", "AddToRows",
                  "Fp8SkinnyKernel", "Fp8GemmKernel"}

LOAD = re.compile(r"\b(LDG|LDGSTS|UTMALDG|LD)\b")
STORE = re.compile(r"\b(STG|ST|RED|REDG|ATOM|ATOMG)\b")


def kernel_name(symbol):
    """`NormRow<EmbeddedRow>` of a demangled or mangled function."""
    name = re.sub(r"\(anonymous namespace\)::", "", symbol)
    for norm, row in (("NormRow", "EmbeddedRow"),
                      ("NormResidualRow", "EmbeddedTokenRow")):
        if norm in name and row in name:
            return f"{norm}<{row}>"
    match = re.search(r"(\w+)(<.*>)?\(", name)
    return match.group(1) if match else name


def check_kernel(symbol, lines):
    """What is wrong with a kernel's code, as a list of sentences."""
    name = kernel_name(symbol)
    wait = next((i for i, line in enumerate(lines) if "ACQBULK" in line), None)
    if wait is None:
        return [f"{symbol}: never waits"]
    wrong = []
    for i, line in enumerate(lines):
        if "CONSTANT" in line and LOAD.search(line):
            wrong.append(f"{symbol}: reads with ld.global.nc: {line.strip()}")
        if i > wait:
            continue
        if STORE.search(line):
            wrong.append(f"{symbol}: writes ahead of its wait: {line.strip()}")
        if LOAD.search(line) and name not in READ_EARLY | READ_CONSTANTS:
            wrong.append(f"{symbol}: reads ahead of its wait: {line.strip()}")
        if "PREEXIT" in line and name in BARRIERS:
            wrong.append(f"{symbol}: a barrier that lets the next kernel start "
                         "ahead of its wait")
    return wrong


def kernels_of(sass):
    """(symbol, lines) of each function of cuobjdump's output for sm_90."""
    kernels = []
    is_hopper = False
    for line in sass.splitlines():
        target = re.search(r"code for (sm_\w+)", line)
        if target:
            is_hopper = target.group(1).startswith("sm_90")
        function = re.search(r"Function : (.*)", line)
        if function and is_hopper:
            kernels.append((function.group(1).strip(), []))
        elif is_hopper and kernels and re.match(r"\s+/\*[0-9a-f]{4,}\*/", line):
            kernels[-1][1].append(line.split("/* 0x")[0])
    return kernels


def run(*command, text=None):
    return subprocess.run(command, input=text, check=True, text=True,
                          capture_output=True).stdout


def main(build):
    objects = sorted(pathlib.Path(build, "kernels").rglob("*.cu.o"))
    if not objects:
        sys.exit(f"{build}/kernels has no objects of CUDA sources")
    count, wrong = 0, []
    for path in objects:
        sass = run("cuobjdump", "-sass", str(path))
        for symbol, lines in kernels_of(run("c++filt", text=sass)):
            count += 1
            wrong += check_kernel(symbol, lines)
    for sentence in wrong:
        print(sentence)
    if count == 0:
        sys.exit(f"{build} has no code for compute capability 9.0")
    print(f"{count} kernels, {len(wrong)} faults")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/cuda")
