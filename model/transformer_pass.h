// TransformerPass: the layers of a transformer, run over some rows of a plan,
// with the scratch this takes.
//
//   embed -> [ norm, q k v, rotate, store k v, attend, output, +,
//              norm, gate up, silu * up, down, + ] x layers -> norm -> head
//
// That is Llama; features of TransformerConfig change its parts: biases after
// products, norms of q and k, norms before additions or after them, windows
// and caps of attention, another activation, learned positions in place of
// rotation.
//
// With an encoder, a layer has cross-attention between its two parts:
//
//   + -> [ norm, q, attend to the source's k v, output, + ] -> norm ...
//
// Those keys and values are computed where a row feeds positions of its source
// (PlanRow::source_length): first the encoder reads the sources of such rows,
// all of their tokens seeing each other; then each layer of the decoder stores
// its keys and values of the positions that are fed. Tokens after the source
// go through the decoder as everywhere, but that their positions, and the pages
// they attend to, begin after it.
//
// Rows are sequences, and sequences do not read what others write in the same
// step; so passes over different rows of one plan may run at the same time.
// A pass itself divides its loops among the threads of the pool it is given.
#pragma once

#include <memory>
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
  std::shared_ptr<const TransformerWeights> weights;
  PagedKvCache cache;
  RotaryTable rotary;
  RotaryTable local_rotary;  // of layers with a window, if it is another
  // [positions, hidden_size], if they are sinusoidal.
  std::vector<float> sinusoidal_positions;

  const TransformerConfig& config() const { return weights->config; }
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
    std::vector<PagedRow> source_rows;  // of the same tokens; with an encoder
    std::vector<TokenId> tokens;
    std::vector<int> positions;  // of the tokens
    int num_tokens = 0;
  };
  // Adds tokens in attention rows of at most so many: a long chunk of a prompt
  // is work for several threads.
  static void AddTokens(std::span<const TokenId> tokens, const PagedRow& row,
                        int source_length, std::span<const PageId> source_pages,
                        Batch* batch);

  Batch TokensOf(const StepPlan& plan, RowRange rows) const;
  void Embed(const Batch& batch, const TransformerStackWeights& stack);
  // x = the tokens' embeddings, where these have another size.
  void ProjectEmbeddings(const Batch& batch, std::span<float> x);
  // Adds the vectors of the tokens' positions, if embeddings have them.
  void AddPosition(const TransformerStackWeights& stack, int position,
                   std::span<float> buffer, std::span<float> x) const;
  void StoreProjections(int layer_idx, const TransformerLayerWeights& layer,
                        const Batch& batch, KvLayer& kv_layer);
  // Norms, rotates: what q and k of a token at `position` become before they
  // are used, in place.
  //   qk  [num_heads + num_kv_heads, head_dim]
  void FinishQueriesAndKeys(int layer_idx, const TransformerLayerWeights& layer,
                            int position, std::span<float> qk);
  Batch KeepLogitsTokens(const StepPlan& plan, RowRange rows,
                         const Batch& batch);
  void AttendAndAdd(const TransformerStackWeights& stack, int layer_idx,
                    const AttentionOptions& options, const Batch& batch,
                    const KvLayer& kv_layer);
  void AttendToSourceAndAdd(const TransformerLayerWeights& layer,
                            const Batch& batch, const KvLayer& kv_layer);
  void FeedForwardAndAdd(const TransformerStackWeights& stack, int layer_idx,
                         int num_tokens);
  AttentionOptions OptionsOf(const TransformerStackWeights& stack,
                             int window) const;
  // gated = activation(gate) * up; or activation(up) in place.
  //   size  of a row of `gated`
  void Activate(std::span<float> gate_up, int size,
                std::span<float> gated) const;
  void WriteLogits(std::span<float> logits, int num_tokens);

  // The encoder's part (transformer_pass_encoder.cc): reads the sources of the
  // rows and stores their keys and values of cross-attention. False if it gave
  // up.
  bool ReadSources(const StepPlan& plan, RowRange rows);
  void StoreSources(const StepPlan& plan, std::span<const PlanSource> sources,
                    int num_tokens);

  // Calls body(begin, end) for blocks of rows [0, num_rows), each of
  // `num_cols` numbers, on the pool. REQUIRES: num_cols >= 1.
  template <typename Body>
  void ForRowBlocks(int num_rows, int num_cols, const Body& body);
  // The first rows of normed_.
  std::span<const float> Normed(int num_tokens) const;
  // y = x * product's matrix, plus its bias.
  void Multiply(std::span<const float> x, const ProductWeights& product,
                std::span<float> y);
  void Normalise(std::span<const float> x, const NormWeights& norm,
                 std::span<float> out) const;
  // x_ += branch, which goes through `post_norm` before, if there is one;
  // normed_ = next_norm of x_. Where sums are normed, x_ becomes that too.
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
  // [n, hidden_size] what is added to x_; [n, embedding_size] embeddings, and
  // what the head reads.
  AlignedVector<float> branch_;
  AlignedVector<float> kept_;  // rows of x_ or qkv_ that are kept
  // Keys and values of the encoder's present layer:
  // [sources, longest, kv_size] each.
  AlignedVector<float> source_keys_;
  AlignedVector<float> source_values_;
};

}  // namespace espalier
