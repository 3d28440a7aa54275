// GeneratorOptions: the device and the limits of a generator (generator.h).
// Unset options have defaults per device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "request/speculation_params.h"

namespace espalier {

class ModelWeights;  // weights of a loaded model; opaque
class TraceSink;     // espalier/trace.h

// A catalogue of items, and the file that has it (request/read_items.h).
struct ItemsFile {
  std::string name;
  std::string path;

  friend bool operator==(const ItemsFile&, const ItemsFile&) = default;
};

struct GeneratorOptions {
  // "cpu"; "cuda", an NVIDIA GPU, or "cuda:1" for the second of them; "auto",
  // the first GPU if there is one that this build can use, otherwise the CPU.
  std::string device = "cpu";
  // Type of weights, activations, keys and values: "f32", "f16" or "bf16".
  // Empty: f32 on the CPU, which supports no other, and bf16 on a GPU.
  std::string dtype = {};
  // Format of the weight matrices. "stored": the file's type, on a GPU that of
  // `dtype`. "fp8": quantised while loading, also for a draft model
  // (docs/models.md); halves the bytes read per step on a GPU, changes results,
  // and is an error on a GPU unless dtype is bf16. "int8" or "int4": CPU only,
  // an error with "cuda".
  std::string weights = "stored";
  // CPU threads; 0 is one for each CPU that the process may use. An error with
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
  // Limits on the work of a step on the CPU (ModelExecutorOptions); unset: its
  // defaults. An error with "cuda".
  std::optional<int64_t> max_candidates = {};
  std::optional<int64_t> max_score_edits = {};

  // Keeps the pages of processed tokens and shares them with requests that have
  // the same prefix, unless a request opts out (prefix_cache, cache_salt).
  bool prefix_cache = true;
  // The part of a step's tokens that prompts get while some are not fed yet,
  // however many beams decode; in [0, 1].
  double prefill_share = 0.25;

  // A directory with a smaller model of the same vocabulary, which drafts
  // tokens for requests that speculate with method "draft"
  // (docs/speculation.md), on the device of the model. On the CPU its weights
  // are int8 where `weights` is "stored". Empty: none.
  std::string draft_model = {};
  // Speculation of requests that leave it unset (GenerationParams::speculate)
  // and support it. Unset: by the draft model, if there is one, else off;
  // SpeculationParams() is off.
  std::optional<SpeculationParams> speculate = {};

  // Catalogues that requests name (ConstraintParams::items). More can be added
  // later (Generator::items).
  std::vector<ItemsFile> items = {};

  // Weights of another generator (Generator::weights), used instead of those of
  // the directory, which are not read, so load_progress is not called. An error
  // unless directory, device, dtype, weights and draft_model are those of the
  // other; all other options may differ. Null: the weights are loaded.
  std::shared_ptr<const ModelWeights> loaded_weights = nullptr;

  // Source of the defaults for params that requests leave open
  // (request/generation_defaults.h): "auto", the model's generation_config.json
  // if there is one, or else its config.json; "strict", likewise, but an error
  // if it has an unsupported field that would change results; "none"; or
  // another such file, or a directory with one.
  std::string generation_config = "auto";

  int max_running = 256;  // requests that run together; >= 1
  // Requests that wait until others end; >= 0. One that comes when max_running
  // + max_waiting are open already is refused with kResourceExhausted.
  // Requests of Generator::engine() count, too.
  int max_waiting = 1024;

  // Time limit of a step. If a step exceeds it, all requests end with
  // kUnavailable, new ones are refused with it until the step's result arrives,
  // and the generator's destructor does not wait for it. Must be longer than
  // any step, the first one included; > 0 (docs/step.md, "Faults").
  absl::Duration step_timeout = absl::InfiniteDuration();
  // Limit on the prompt tokens of waiting requests; a request whose prompt
  // would exceed it is refused. >= 0; 0: no limit.
  int64_t max_waiting_tokens = 0;

  // Called on the loading thread with the number of loaded bytes of a model's
  // weights, as `done` rises to `total`; for a draft model after the model. CPU
  // only: loading to a GPU does not call it. May be null.
  std::function<void(int64_t done, int64_t total)> load_progress = nullptr;
  // Called on the loading thread, once, with a sentence for the user if kernels
  // are not tuned for this GPU. May be null.
  std::function<void(std::string_view note)> load_note = nullptr;

  // Records what every request does from its admission on, on the engine's
  // thread, before the request is answered. It must not call the generator.
  // Null: no trace, at no cost.
  std::shared_ptr<TraceSink> trace = nullptr;
};

}  // namespace espalier
