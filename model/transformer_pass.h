// TransformerPass: the layers of a transformer, run over some rows of a plan,
// with the scratch this takes.
//
//   embed -> [ norm, q k v, rotate, store k v, attend, output, +,
//              norm, gate up, silu * up, down, + ] x layers -> norm -> head
//
// That is Llama; features of TransformerConfig change its parts: biases after
// products, norms of q and k, norms before additions, windows and caps of
// attention, another activation, learned positions in place of rotation.
//
// Rows are sequences, and sequences do not read what others write in the same
// step; so passes over different rows of one plan may run at the same time.
// A pass itself divides its loops among the threads of the pool it is given.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec_request/step_plan.h"
#include "kernels/aligned_vector.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_cache/paged_kv_cache.h"
#include "model/transformer_config.h"
#include "model/transformer_weights.h"

namespace espalier {

// What passes share: constant, but for the keys and values behind `cache`.
struct TransformerNetwork {
  TransformerConfig config;
  TransformerWeights weights;
  PagedKvCache cache;
  RotaryTable rotary;
  RotaryTable local_rotary;  // of layers with a window, if it is another
};

// Rows [begin, end) of a plan.
struct RowRange {
  int begin = 0;
  int end = 0;
};

class TransformerPass {
 public:
  // `network` outlives the pass.
  explicit TransformerPass(const TransformerNetwork* network)
      : network_(*network) {}

  // Feeds the rows' tokens and fills their rows of logits; or gives up before
  // some layer, once plan.stop is requested. Throws std::bad_alloc.
  //   logits  [plan.num_logits, vocab_size]  those of all rows of the plan
  // REQUIRES: `rows` is not empty.
  void Run(const StepPlan& plan, RowRange rows, std::span<float> logits,
           ThreadPool& pool);

 private:
  // The tokens a layer works on, as rows of the scratch.
  struct Batch {
    std::vector<PagedRow> rows;
    int num_tokens = 0;
  };

  Batch TokensOf(const StepPlan& plan, RowRange rows) const;
  void Embed(const Batch& batch, std::span<const TokenId> tokens);
  void StoreProjections(int layer_idx, const Batch& batch, KvLayer& kv_layer);
  // Norms, rotates: what q and k of a token at `position` become before they
  // are used, in place.
  //   qk  [num_heads + num_kv_heads, head_dim]
  void FinishQueriesAndKeys(int layer_idx, int position, std::span<float> qk);
  Batch KeepLogitsTokens(const StepPlan& plan, RowRange rows);
  void AttendAndAdd(int layer_idx, const Batch& batch, const KvLayer& kv_layer);
  void FeedForwardAndAdd(const TransformerLayerWeights& layer, int num_tokens,
                         const NormWeights& next_norm);
  // gated = activation(gate) * up; or activation(up) in place, a gelu.
  void Activate(std::span<float> gate_up, std::span<float> gated) const;
  void WriteLogits(std::span<float> logits, int num_tokens);

  // Calls body(begin, end) for blocks of rows [0, num_rows), on the pool.
  template <typename Body>
  void ForRowBlocks(int num_rows, const Body& body);
  // The first rows of normed_.
  std::span<const float> Normed(int num_tokens) const;
  // y = x * product's matrix, plus its bias.
  void Multiply(std::span<const float> x, const ProductWeights& product,
                std::span<float> y);
  void Normalise(std::span<const float> x, const NormWeights& norm,
                 std::span<float> out) const;
  // x_ += branch, which goes through `post_norm` before, if there is one;
  // normed_ = next_norm of x_.
  void AddAndNormalise(std::span<float> branch, const NormWeights& post_norm,
                       const NormWeights& next_norm, int num_tokens);

  const TransformerNetwork& network_;
  ThreadPool* pool_ = nullptr;  // of the present Run

  // Scratch of one Run, kept for the next; each grows to the largest step so
  // far. Rows are tokens.
  AlignedVector<float> x_;         // [n, hidden_size]  residual stream
  AlignedVector<float> normed_;    // [n, hidden_size]
  AlignedVector<float> qkv_;       // [n, q_size + 2 * kv_size]
  AlignedVector<float> attended_;  // [n, q_size]
  AlignedVector<float> gate_up_;   // [n, 2 * intermediate_size]
  AlignedVector<float> gated_;     // [n, intermediate_size]
  AlignedVector<float> branch_;    // [n, hidden_size]  what is added to x_
  AlignedVector<float> kept_;      // rows of x_ or qkv_ that are kept
};

}  // namespace espalier
