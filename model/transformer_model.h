// TransformerModel: the forward pass of transformers on the CPU, over paged
// keys and values.
//
// Arithmetic is float32 for all weight formats, except for products of
// quantised weights (kernels/matmul/weight_format.h). Each token is computed
// alone in a fixed order of operations: its logits are the same bits in any
// batch, at any page size, and however its sequence is divided among plans. For
// a token without logits the last layer stops once its keys and values are
// stored.
//
// A step with enough rows is divided by rows: each thread runs some sequences
// through all layers, at most 512 tokens at a time (a longer row runs alone),
// and the threads synchronise once, at the end. A smaller step is one pass,
// whose matrix products are divided by columns, so that the threads share the
// reading of the weights.
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
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "kernels/matmul/weight_format.h"
#include "model/load_progress.h"

namespace espalier {

struct TransformerOptions {
  int page_size = 16;  // tokens; in [1, 4096]
  // Size of the KV cache; description().num_pages pages fit.
  int64_t kv_cache_bytes = 256 << 20;
  // Host memory for pages of preempted groups, committed on use; 0: none.
  int64_t host_cache_bytes = 0;
  WeightFormat weights = WeightFormat::kAsStored;
  LoadProgress progress = nullptr;  // may be null
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

  // Makes a model of loaded weights, with its own KV cache, and reads no files.
  // Errors: kInvalidArgument naming the option and the value, also if
  // options.weights is not the format of `weights`; kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<TransformerModel>> Create(
      std::shared_ptr<const TransformerWeights> weights,
      const TransformerOptions& options, std::shared_ptr<ThreadPool> pool);

  // Pass to Create for another model on the same weights.
  const std::shared_ptr<const TransformerWeights>& weights() const;
  // Takes other weights of the same config: those of later calls of Forward.
  // REQUIRES: Forward does not run.
  void SetWeights(std::shared_ptr<const TransformerWeights> weights);

  ~TransformerModel() override;

  const ModelDescription& description() const override;

  // REQUIRES: tokens below vocab_size, positions below max_context and pages of
  // this model, which requests are checked for before they are planned.
  // Errors: kResourceExhausted if memory runs out;
  // kCancelled if plan.stop was requested.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;
  absl::Status ForwardAligned(
      const StepPlan& plan, std::span<float> logits,
      std::span<std::vector<float>> attention_scores) override;

 private:
  class Impl;
  explicit TransformerModel(std::unique_ptr<Impl> impl);

  // Throws std::bad_alloc.
  static absl::StatusOr<std::unique_ptr<TransformerModel>> MakeModel(
      std::shared_ptr<const TransformerWeights> weights,
      const TransformerOptions& options, std::shared_ptr<ThreadPool> pool);

  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
