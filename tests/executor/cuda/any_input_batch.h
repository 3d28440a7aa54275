// Batches of any composition that a step can have: groups that go on by
// themselves and rows of every kind, padding, then prompts and logits that are
// scored, with padding where each token has a row of logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "executor/cuda/batch/cuda_input_batch.h"

namespace espalier::testing {

class AnyInputBatch {
 public:
  // The most that a batch has of each.
  static constexpr int kMaxSlots = 48;
  static constexpr int kMaxTokens = 128;
  static constexpr int kMaxLogitsRows = 96;
  static constexpr int kMaxEdits = 4096;
  static constexpr int kMaxWidth = 5;  // slots of a group
  // Source length of a page table. Half of all batches belong to a model with
  // an encoder.
  static int SourceLengthOf(int table) { return 1 + 7 * table % 30; }
  static constexpr CudaInputBatch::Shape kShape = {.vocab_size = 40,
                                                   .page_size = 4,
                                                   .max_positions = 80,
                                                   .max_edits = kMaxEdits};

  explicit AnyInputBatch(uint32_t seed) : random_(seed) {}

  CudaInputBatch Make();

 private:
  // A request with what its spans point to.
  struct Asked {
    SelectionKind kind = SelectionKind::kBeams;
    bool gumbel_top_k = false;
    SelectionParams params;
    int num_candidates = 1;
    int num_generated = 0;
    std::vector<std::vector<TokenId>> histories = {};
    std::vector<std::vector<TokenId>> allowed_tokens = {};
    std::vector<std::span<const TokenId>> allowed = {};
    std::vector<int> slots = {};
    std::vector<int> samples = {};

    CudaGroupRequest view() const {
      return {.kind = kind,
              .num_candidates = num_candidates,
              .gumbel_top_k = gumbel_top_k,
              .num_generated = num_generated,
              .params = &params,
              .histories = histories,
              .allowed = allowed,
              .slots = slots,
              .samples = samples};
    }
  };

  int Below(int limit) { return static_cast<int>(random_() % limit); }
  std::vector<TokenId> AnyTokens(int count);
  CudaGroup AnyGroup(int num_slots);
  // Sets the kind and the params of `*asked`.
  void SetAnyParams(Asked* asked);
  Asked AnyAsked(int num_rows);
  void AddPrompt(CudaInputBatch* batch);
  void AddDifferentRows(const CudaGroup& group, int num_rows,
                        const Asked& asked, CudaInputBatch* batch);
  void AddKnown(CudaInputBatch* batch);

  CudaTokenSource SourceOf(int table) const;

  std::mt19937 random_;
  // State of the batch under construction.
  int num_slots_ = 0;
  bool has_encoder_ = false;
};

}  // namespace espalier::testing
