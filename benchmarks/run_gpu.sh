#!/usr/bin/env bash
# Measures espalier and its peers on the GPU of this machine, in one run, and
# prints markdown tables: those of docs/performance.md.
#
#   benchmarks/run_gpu.sh [PART]...
#
#   select sample attention matmul
#                             kernels, beside torch's
#   forward                   the forward pass alone
#   step                      whole decode steps, beside a CUDA graph of torch's
#   vllm                      the same work in vLLM, where PYTHON has it
#   fp8                       the same with weights of e4m3, beside bf16, and
#                             their products
#   speech                    Whisper's shapes: reading sources, and steps
#   histories                 edits of scores that follow from histories
#   constraints               steps whose rows have masks, and making these
#   wide                      512 and 5,000 beams, and attention of so many
#   parity                    results against the reference, and among others
#   e2e                       500 sentences, beside transformers
#
# Without parts, all of them but vllm. BIN is the directory of the programs
# (build/cuda/bin without), PYTHON a Python with tools/requirements.txt and a
# torch for GPUs (python3 without). A part that fails or takes too long says so
# and leaves the others; then the exit code is 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
readonly bin=${BIN:-build/cuda/bin} python=${PYTHON:-python3}
work=$(mktemp -d)
readonly work
trap 'rm -rf "$work"' EXIT

readonly steps=(68m:5x1/128 68m:16x8/512 1b:1x4/128 1b:8x4/512 8b:1x4/128
  8b:8x4/512 8b:16x8/512 8b:1x8/8192 1b:64x1/128 1b:64s1/128 1b:16x4/128)
failed=0

# limited SECONDS COMMAND...: its output, or a line that it failed.
limited() {
  local seconds=$1
  shift
  timeout "$seconds" "$@" && return
  failed=1
  printf '\n**Failed or took longer than %d s: `%s`**\n' "$seconds" "$*"
}

# What prints columns, not markdown.
columns() {
  printf '```\n'
  limited "$@"
  printf '```\n\n'
}

run_kernel() {
  columns 60 "$bin/cuda_$1_benchmark"
  limited 60 "$python" benchmarks/peers/torch_kernels.py "$1"
}

run_select() { run_kernel select; }
run_sample() { run_kernel sample; }
run_attention() { run_kernel attention; }
run_matmul() { run_kernel matmul; }
run_forward() { columns 60 "$bin/cuda_forward_benchmark"; }

# torch's figures are a column of the tables; without them it stays empty.
torch_graph() {
  : >"$work/torch.jsonl"
  limited 120 "$python" benchmarks/peers/torch_graph.py \
    --output "$work/torch.jsonl" "$@"
}

# Its graph draws no samples (MODEL:REQUESTSsSAMPLES/TOKENS).
run_step() {
  local step with_torch=() without=()
  for step in "${steps[@]}"; do
    if [[ $step == *:*s* ]]; then
      without+=("$step")
    else
      with_torch+=("$step")
    fi
  done
  torch_graph "${with_torch[@]}"
  limited 120 "$bin/cuda_step_benchmark" --torch "$work/torch.jsonl" \
    "${steps[@]}"
  printf '\nLeft out: a graph of torch that draws samples, for %s\n' \
    "${without[*]}"
}

# Beside our steps of the same shapes, whose beams are vLLM's samples.
run_vllm() {
  local cases=(68m:5x1/128 1b:1x4/128 1b:64x1/128 1b:64s1/128 8b:1x4/128
    8b:8x4/512 8b:16x8/512 8b:1x8/8192)
  limited 120 "$bin/cuda_step_benchmark" "${cases[@]}"
  echo
  limited 400 "$python" benchmarks/peers/vllm_step.py "${cases[@]}"
}

run_speech() {
  local cases=(whisper-{base,large}:{1,8,16}x5/1500 whisper-turbo:16x5/1500)
  limited 120 "$bin/cuda_step_benchmark" "${cases[@]}"
}

run_fp8() {
  limited 90 "$bin/cuda_step_benchmark" --fp8 1b:1x4/128 8b:1x4/128 8b:4x4/512 \
    8b:8x4/512 8b:16x8/512
  columns 90 "$bin/cuda_fp8_benchmark"
}

run_histories() {
  local cases=(68m:16x4/128 68m:16x4/2048 1b:16x4/128 68m:64s1/512)
  columns 60 "$bin/cuda_history_benchmark"
  limited 60 "$bin/cuda_step_benchmark" --processors "${cases[@]}"
  limited 60 "$bin/cuda_step_benchmark" "${cases[@]}"
}

run_constraints() {
  local cases=(68m:5x1/128 68m:16x8/512 68m:32x4/512 68m:64s2/512 8b:1x4/128
    8b:16x4/512 8b:16x8/512)
  limited 100 "$bin/cuda_step_benchmark" --constraint lines --new-tokens 256 \
    "${cases[@]}"
  limited 60 "$bin/cuda_step_benchmark" --constraint arrays --new-tokens 256 \
    68m:5x1/128 68m:16x8/512 8b:16x4/512 8b:16x8/512
  limited 100 "$bin/cuda_step_benchmark" --new-tokens 256 "${cases[@]}"
  columns 60 "$bin/cuda_token_masks_benchmark"
  columns 60 "$bin/cuda_item_masks_benchmark"
}

run_wide() {
  torch_graph 0.6b:1x512/512
  limited 90 "$bin/cuda_step_benchmark" --new-tokens 16 \
    --torch "$work/torch.jsonl" 0.6b:1x512/512 0.6b:1x5000/512
  printf '\nLeft out: a graph of torch of 5,000 beams\n'
  columns 60 "$bin/cuda_attention_benchmark" --wide
}

run_parity() {
  limited 120 "$python" -m tools.parity --espalier "$bin/espalier"
}

run_e2e() {
  limited 180 "$python" -m tools.peers.compare --gpu --rounds 3 \
    --repeats 3 --threads "$(nproc)" --espalier "$bin/espalier" 2>"$work/e2e.err" ||
    cat "$work/e2e.err"
}

parts=("$@")
[[ $# -gt 0 ]] || parts=(select sample attention matmul forward step fp8 speech
  histories constraints wide parity e2e)
for part in "${parts[@]}"; do
  if ! declare -F "run_$part" >/dev/null || [[ $part == kernel ]]; then
    echo "No part $part; see the head of $0." >&2
    exit 2
  fi
done

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem \
  --format=csv,noheader || true
for part in "${parts[@]}"; do
  start=$SECONDS
  printf '\n## %s\n\n' "$part"
  "run_$part"
  printf '\n(%d s)\n' "$((SECONDS - start))"
done
exit "$failed"
