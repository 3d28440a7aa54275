// TransformerModel: the forward pass of transformers on the CPU, over paged
// keys and values.
//
// Arithmetic is float32 whatever the weights are, but for products of quantised
// ones (kernels/matmul/weight_format.h). Each token is computed alone
// in a fixed order of operations: its logits are the same bits in any batch,
// at any page size, and however its sequence is divided among plans. All that
// a token without logits leaves behind is keys and values, so the last layer
// stops there for it.
//
// A step with enough rows is divided by rows: each thread takes some sequences
// through all layers, at most 512 tokens at a time but for a longer row, which
// goes alone, and the threads meet once, at the end. A smaller step is one
// pass, whose matrix products are divided by columns: then the threads share
// the reading of the weights.
//
// Thread safety: one thread at a time calls Forward, and the work runs on the
// pool that was passed in, which others may use at the same time.
//
//   ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(2));
//   ASSIGN_OR_RETURN(
//       auto model, TransformerModel::Load("models/en-fr", {}, pool));
//   RETURN_IF_ERROR(model->Forward(plan, logits));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "kernels/matmul/weight_format.h"
#include "model/load_progress.h"

namespace espalier {

struct TransformerOptions {
  int page_size = 16;  // tokens; in [1, 4096]
  // Key/value memory; description().num_pages is what it holds.
  int64_t kv_cache_bytes = 256 << 20;
  // Memory for pages of preempted groups, as much as is touched; 0: none.
  int64_t host_cache_bytes = 0;
  WeightFormat weights = WeightFormat::kAsStored;
  LoadProgress progress = nullptr;  // null: nothing is called
};

struct TransformerWeights;  // model/transformer_weights.h

class TransformerModel : public Model {
 public:
  // Loads a model directory as transformers writes it: config.json,
  // generation_config.json, model.safetensors or its shards.
  // Errors: kNotFound if a file is missing; kInvalidArgument naming the file,
  // field, tensor or option and the value; kResourceExhausted if memory runs
  // out.
  static absl::StatusOr<std::unique_ptr<TransformerModel>> Load(
      const std::string& directory, const TransformerOptions& options,
      std::shared_ptr<ThreadPool> pool);

  // Makes a model of loaded weights, with a cache of its own: the positions it
  // can have are computed, nothing is read.
  // Errors: kInvalidArgument naming the option and the value, also if
  // options.weights is not the format of `weights`; kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<TransformerModel>> Create(
      std::shared_ptr<const TransformerWeights> weights,
      const TransformerOptions& options, std::shared_ptr<ThreadPool> pool);

  // For other models on the same weights.
  const std::shared_ptr<const TransformerWeights>& weights() const;

  ~TransformerModel() override;

  const ModelDescription& description() const override;

  // REQUIRES: what requests are checked for before they are planned: tokens
  // below vocab_size, positions below max_context; and pages of this model.
  // Errors: kResourceExhausted if there is no memory for so many tokens;
  // kCancelled if plan.stop was requested.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

 private:
  class Impl;
  explicit TransformerModel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
