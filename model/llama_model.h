// LlamaModel: the forward pass of Llama-family models on the CPU, over paged
// keys and values.
//
//   embed -> [ norm, q k v, rotate, store k v, attend, output, +,
//              norm, gate up, silu * up, down, + ] x layers -> norm -> head
//
// Arithmetic is float32 whatever the weights are. Each token is computed alone
// in a fixed order of operations: its logits are the same bits in any batch,
// at any page size, and however its sequence is divided among plans. All that
// a token without logits leaves behind is keys and values, so the last layer
// stops there for it.
//
// Thread rule: one thread at a time calls Forward, and the work runs on the
// pool that was passed in.
//
//   ThreadPool pool(2);
//   ASSIGN_OR_RETURN(auto model, LlamaModel::Load("models/en-fr", {}, &pool));
//   RETURN_IF_ERROR(model->Forward(plan, logits));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "kernels/aligned_vector.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "model/paged_kv_cache.h"

namespace espalier {

struct LlamaOptions {
  int page_size = 16;  // tokens; in [1, 4096]
  // Key/value memory; description().num_pages is what it holds.
  int64_t kv_cache_bytes = 256 << 20;
};

class LlamaModel : public Model {
 public:
  // Loads a model directory as transformers writes it: config.json,
  // generation_config.json, model.safetensors or its shards.
  // Errors: kNotFound if a file is missing; kInvalidArgument naming the file,
  // field or tensor and the value; kResourceExhausted if memory runs out.
  // `pool` outlives the model.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Load(
      const std::string& directory, const LlamaOptions& options,
      ThreadPool* pool);

  const ModelDescription& description() const override { return description_; }

  // REQUIRES: what requests are checked for before they are planned: tokens
  // below vocab_size, positions below max_context; and pages of this model.
  // Errors: kResourceExhausted if there is no memory for so many tokens.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

 private:
  // The tokens a layer works on.
  struct Batch {
    std::vector<AttentionRow> rows;
    int num_tokens = 0;
  };

  LlamaModel(LlamaConfig config, LlamaWeights weights, PagedKvCache cache,
             ThreadPool* pool);

  bool IsSound(const StepPlan& plan) const;
  void Compute(const StepPlan& plan, std::span<float> logits);
  void Embed(std::span<const TokenId> tokens);
  void StoreProjections(const LlamaLayerWeights& layer, const Batch& batch,
                        KvLayer& kv_layer);
  Batch KeepLogitsTokens(const StepPlan& plan);
  void AttendAndAdd(const LlamaLayerWeights& layer, const Batch& batch,
                    const KvLayer& kv_layer);
  void FeedForwardAndAdd(const LlamaLayerWeights& layer, int num_tokens,
                         std::span<const float> next_norm);

  // Calls body(begin, end) for blocks of rows [0, num_rows), on the pool.
  template <typename Body>
  void ForRowBlocks(int num_rows, const Body& body);
  // The first lines of normed_.
  std::span<const float> Normed(int num_tokens) const;
  // x_ += branch; normed_ = RmsNorm(x_).
  void AddAndNormalise(std::span<const float> branch,
                       std::span<const float> weight, int num_tokens);

  // Constant after construction.
  LlamaConfig config_;
  LlamaWeights weights_;
  PagedKvCache cache_;
  RotaryTable rotary_;
  ModelDescription description_;
  ThreadPool* pool_;

  // Scratch of one Forward, kept for the next; each grows to the largest step
  // so far. Lines are tokens.
  AlignedVector<float> x_;         // [n, hidden_size]  residual stream
  AlignedVector<float> normed_;    // [n, hidden_size]
  AlignedVector<float> qkv_;       // [n, q_size + 2 * kv_size]
  AlignedVector<float> attended_;  // [n, q_size]
  AlignedVector<float> gate_up_;   // [n, 2 * intermediate_size]
  AlignedVector<float> gated_;     // [n, intermediate_size]
  AlignedVector<float> branch_;    // [n, hidden_size]  what is added to x_
  AlignedVector<float> kept_;      // lines of x_ or qkv_ that are kept
};

}  // namespace espalier
