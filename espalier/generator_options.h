// GeneratorOptions: what a generator (generator.h) runs on, and its limits.
// What is left unset is chosen by the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "request/speculation_params.h"

namespace espalier {

class TraceSink;  // espalier/trace.h

struct GeneratorOptions {
  // "cpu"; "cuda", an NVIDIA GPU, or "cuda:1" for the second of them; "auto",
  // the first GPU if there is one that this build can use, otherwise the CPU.
  std::string device = "cpu";
  // Of weights, activations, keys and values: "f32", "f16" or "bf16". Empty:
  // f32 on the CPU, which computes in nothing else, and bf16 on a GPU.
  std::string dtype = {};
  // How matrices are held: "stored", in the type that they have in the file, on
  // a GPU in that of `dtype`; "fp8", quantised when they are loaded, of a draft
  // model, too (docs/models.md): half of the bytes a step on a GPU, where it is
  // an error unless dtype is bf16, and other results; "int8" or "int4", which
  // are of the CPU and an error with "cuda".
  std::string weights = "stored";
  // Of the CPU; 0 is one for each CPU that the process may use. An error with
  // "cuda".
  int num_threads = 0;

  // Key/value memory: on the CPU touched only as needed, on a GPU taken at
  // once. Unset: 1 GiB on the CPU, 4 GiB on a GPU.
  std::optional<int64_t> kv_cache_bytes = {};
  std::optional<int> page_size = {};  // tokens; in [1, 4096]; unset: 16

  // Host memory for pages of requests that are preempted, to bring them back
  // instead of computing them again; 0: none. On the CPU touched only as
  // needed, for a GPU taken at once and pinned. Unset: none on the CPU, 1 GiB
  // for a GPU.
  std::optional<int64_t> host_cache_bytes = {};
  // Which pages go there: "auto", those that come back sooner than they are
  // computed; "host", all, as long as there is room; "drop", none, which is an
  // error beside host_cache_bytes above 0.
  std::string preempted_pages = "auto";

  // Tokens fed in one step; >= 1. Unset: 128 on the CPU, 2,048 on a GPU.
  std::optional<int> max_step_tokens = {};
  // Beams and samples of all requests that run; >= 1. Unset: what 1 GiB of
  // logits holds, at most 8,192 on the CPU and max_step_tokens on a GPU.
  std::optional<int> max_beams = {};
  // What a step may take of the CPU (ModelExecutorOptions); unset: its
  // defaults. An error with "cuda".
  std::optional<int64_t> max_candidates = {};
  std::optional<int64_t> max_score_edits = {};

  // Keeps the pages of what was fed, and shares them with requests that begin
  // alike, unless a request wants it otherwise (prefix_cache, cache_salt).
  bool prefix_cache = true;
  // The part of a step's tokens that prompts get while some are not fed yet,
  // however many beams decode; in [0, 1].
  double prefill_share = 0.25;

  // A directory with a smaller model of the same vocabulary, which drafts
  // tokens for requests that speculate with method "draft"
  // (docs/speculation.md), on the device of the model. On the CPU its weights
  // are int8 where `weights` is "stored". Empty: none.
  std::string draft_model = {};
  // How requests speculate that do not say (GenerationParams::speculate is
  // unset) and can. Unset: by the draft model, if there is one, else not at
  // all; SpeculationParams() is not at all.
  std::optional<SpeculationParams> speculate = {};

  // Where the defaults of requests are read that leave params open
  // (request/generation_defaults.h): "auto", the model's generation_config.json
  // if there is one, or else its config.json; "strict", the same, but an error
  // if it has a field that would change results and that there is nothing for;
  // "none"; or another such file, or a directory with one.
  std::string generation_config = "auto";

  int max_running = 256;  // requests that run together; >= 1
  // Requests that wait until others end; >= 0. One that comes when max_running
  // + max_waiting are open already is refused with kResourceExhausted.
  // Requests of Generator::engine() count, too.
  int max_waiting = 1024;

  // How long a step may take. Where one does not answer within that, all
  // requests end with kUnavailable, new ones are refused with it until the
  // answer comes, and the generator's end does not wait for it. Longer than any
  // step, the first one included; > 0 (docs/step.md, "Faults").
  absl::Duration step_timeout = absl::InfiniteDuration();
  // Prompt tokens of requests that wait; one whose prompt does not fit beside
  // these is refused as well. >= 0; 0: no limit.
  int64_t max_waiting_tokens = 0;

  // Called by the thread that loads with how many bytes of a model's weights
  // are loaded, as `done` rises to `total`; for a draft model after the model.
  // Of the CPU: loading to a GPU does not call it. Null: nothing is called.
  std::function<void(int64_t done, int64_t total)> load_progress = nullptr;

  // Records what every request does from its admission on, on the engine's
  // thread, before the request is answered. It must not call the generator.
  // Null: no trace, at no cost.
  std::shared_ptr<TraceSink> trace = nullptr;
};

}  // namespace espalier
