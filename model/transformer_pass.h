// TransformerPass: runs the layers of a transformer over rows of a plan, and
// owns the scratch for it.
//
//   embed -> [ norm, q k v, rotate, store k v, attend, output, +,
//              norm, gate up, silu * up, down, + ] x layers -> norm -> head
//
// This is Llama. Features of TransformerConfig change its parts: biases, norms
// of q and k, norms before or after the residual adds, attention windows and
// soft caps, other activations, other position encodings.
//
// With an encoder, a layer has cross-attention between its two parts:
//
//   + -> [ norm, q, attend to the source's k v, output, + ] -> norm ...
//
// If a row's source is not stored yet (PlanSource::num_stored), the encoder
// first reads it with bidirectional attention, and each decoder layer's
// cross-attention keys and values of it are stored in its pages.
//
// Each row is a sequence, and no sequence reads keys or values that another
// writes in the same step, so passes over different rows of a plan may run in
// parallel. A pass divides its loops among the threads of its pool.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
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

// State that all passes share. Constant, except for the contents of `cache`.
struct TransformerNetwork {
  std::shared_ptr<const TransformerWeights> weights;
  PagedKvCache cache;
  RotaryTable rotary;
  RotaryTable local_rotary;  // for layers with a window, if it differs
  // [positions, hidden_size]; empty unless positions are sinusoidal.
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

  // Computes the rows' tokens and fills their rows of logits. Returns early,
  // between two layers, once plan.stop is requested. Throws std::bad_alloc.
  //   logits            [plan.num_logits, vocab_size]  for all rows of the plan
  //   attention_scores  [plan.scorings], each [tokens, heads, num_positions] if
  //                     it has an alignment; empty: none has
  // REQUIRES: `rows` is not empty.
  void Run(const StepPlan& plan, RowRange rows, std::span<float> logits,
           std::span<std::vector<float>> attention_scores, ThreadPool& pool);

 private:
  // The tokens that a layer works on; token i is row i of the scratch.
  struct Batch {
    std::vector<PagedRow> rows;
    std::vector<PagedRow> source_rows;  // for cross-attention
    std::vector<TokenId> tokens;
    std::vector<int> positions;  // [num_tokens]
    int num_tokens = 0;
  };
  // Tokens whose scores of cross-attention are reported.
  struct AlignedTokens {
    const AlignmentQuery* query;
    std::span<const PageId> pages;  // the source's
    int first_token;                // in the batch
    int first_kept;                 // in the last layer's batch
    int num_tokens;
    std::span<float> scores;  // [num_tokens, heads, num_positions]
  };
  static std::vector<AlignedTokens> ListAligned(
      const StepPlan& plan, RowRange rows,
      std::span<std::vector<float>> attention_scores);
  // Fills the scores of the layer's heads; its queries are in qkv_.
  void ReportScores(int layer_idx, std::span<const AlignedTokens> aligned,
                    const KvLayer& kv_layer);
  // Adds a row's tokens, split into short attention rows, so that several
  // threads share a long chunk of a prompt.
  static void AddTokens(std::span<const TokenId> tokens, const PagedRow& row,
                        const PlanSource* source, Batch* batch);

  Batch TokensOf(const StepPlan& plan, RowRange rows) const;
  void Embed(const Batch& batch, const TransformerStackWeights& stack);
  // The embeddings of sources that are features: two convolutions of them, and
  // positions.
  void EmbedFeatures(std::span<const PlanSource* const> sources);
  // y = activation(convolution of x), of frames [num_frames, channels]; each
  // output frame reads the three around frame `stride` times its number.
  void Convolve(std::span<const float> x, int num_frames, int stride,
                const ProductWeights& product, std::span<float> y);
  // x = project_in * embeddings, if embeddings have another size than x.
  void ProjectEmbeddings(const Batch& batch, std::span<float> x);
  // Adds the position's vector to `x`, if positions are added to embeddings.
  void AddPosition(const TransformerStackWeights& stack, int position,
                   std::span<float> buffer, std::span<float> x) const;
  void StoreProjections(int layer_idx, const WeightParts& layer,
                        const Batch& batch, KvLayer& kv_layer);
  // Applies the head norms and RoPE to q and k of a token, in place.
  //   qk  [num_heads + num_kv_heads, head_dim]
  void FinishQueriesAndKeys(int layer_idx, const WeightParts& layer,
                            int position, std::span<float> qk);
  Batch KeepLogitsTokens(const StepPlan& plan, RowRange rows,
                         const Batch& batch);
  void AttendAndAdd(const TransformerStackWeights& stack, int layer_idx,
                    const AttentionOptions& options, const Batch& batch,
                    const KvLayer& kv_layer, const std::stop_token& stop);
  void AttendToSourceAndAdd(int layer_idx, const WeightParts& layer,
                            const Batch& batch,
                            std::span<const AlignedTokens> aligned,
                            const KvLayer& kv_layer);
  void FeedForwardAndAdd(const TransformerStackWeights& stack, int layer_idx,
                         int num_tokens);
  AttentionOptions OptionsOf(const TransformerStackWeights& stack,
                             int layer_idx, int window) const;
  // gated = activation(gate) * up; without a gate, activation(up) in place.
  //   size  width of a row of `gated`
  void Activate(std::span<float> gate_up, int size,
                std::span<float> gated) const;
  void WriteLogits(std::span<float> logits, int num_tokens);

  // Runs the encoder over the rows' sources and stores their cross-attention
  // keys and values. False if plan.stop ended it.
  bool ReadSources(const StepPlan& plan, RowRange rows);
  void StoreSources(std::span<const PlanSource* const> sources, int num_tokens);

  // Calls body(begin, end) for blocks of rows [0, num_rows), each of
  // `num_cols` numbers, on the pool.
  // REQUIRES: num_cols >= 1.
  template <typename Body>
  void ForRowBlocks(int num_rows, int num_cols, const Body& body);
  // The first rows of normed_.
  std::span<const float> Normed(int num_tokens) const;
  // y = x * product's matrix, plus its bias.
  void Multiply(std::span<const float> x, const ProductWeights& product,
                std::span<float> y);
  void Normalise(std::span<const float> x, const NormWeights& norm,
                 std::span<float> out) const;
  // x_ += post_norm(branch), or branch without a post_norm; then
  // normed_ = next_norm(x_). With norms_sums also x_ = normed_.
  void AddAndNormalise(std::span<float> branch, const NormWeights& post_norm,
                       const NormWeights& next_norm, int num_tokens);

  const TransformerNetwork& network_;
  ThreadPool* pool_ = nullptr;  // the current Run's

  // Scratch, kept between Runs; grows to the largest step so far. n: tokens.
  AlignedVector<float> x_;         // [n, hidden_size]  residual stream
  AlignedVector<float> normed_;    // [n, hidden_size]
  AlignedVector<float> qkv_;       // [n, q_size + 2 * kv_size]
  AlignedVector<float> attended_;  // [n, q_size]
  AlignedVector<float> gate_up_;   // [n, 2 * intermediate_size]
  AlignedVector<float> gated_;     // [n, intermediate_size]
  // [n, hidden_size]: the branch to be added to x_. [n, embedding_size]:
  // embeddings before project_in, and the head's input after project_out.
  AlignedVector<float> branch_;
  // With features, as many frames as a source has.
  AlignedVector<float> frames_;      // [frames, hidden_size]
  AlignedVector<float> neighbours_;  // [frames, kNumTaps, channels]
  AlignedVector<float> kept_;  // rows of x_ or qkv_ whose tokens have logits
  // Keys and values of the encoder's current layer:
  // [sources, longest source, kv_size] each.
  AlignedVector<float> source_keys_;
  AlignedVector<float> source_values_;
};

}  // namespace espalier
