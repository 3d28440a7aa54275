// CudaDraftBatch: the input batch for one run of a draft model, in host
// vectors: some sequences, the one or two tokens that each feeds at first, and
// their sampling parameters. The number of rows is padded to a few values, so
// that graphs can run it.
//
//   first step   a0 a1 | -  b1 | c0 c1 | -  -      two tokens a row, if some
//   next steps   a2    |  b2   |  c2   |  -        row feeds two; then one
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/draft/cuda_draft_memory.h"
#include "kernels/attention/cuda_attention_plan.h"

namespace espalier {

// The tokens that a step feeds.
struct CudaDraftTokens {
  std::vector<TokenId> tokens;
  std::vector<int> positions;
  std::vector<int> token_tables;
  std::vector<CudaAttentionRow> attention_rows;

  // Appends `count` padding tokens.
  void Pad(int count, int null_table);
};

struct CudaDraftBatch {
  //   first_drafted  CudaDraftRow::first_drafted
  CudaDraftBatch(const CudaDraftLimits& limits, int page_size, int vocab_size,
                 int first_drafted = 0)
      : limits_(limits),
        page_size_(page_size),
        vocab_size_(vocab_size),
        first_drafted_(first_drafted) {}

  // Adds a row that feeds `fed` from `first_position` on, for `sequence`. Its
  // rows of logits are kept from row `first_kept` of the pool on; -1: not kept.
  // A sequence with verified_before passes one token; the device replaces it
  // and its position.
  void Add(const DraftSequence& sequence, std::span<const TokenId> fed,
           int first_position, int first_kept);
  // Adds padding rows up to `padded_rows`.
  // REQUIRES: all sequences were added before.
  void Pad(int padded_rows);

  int num_rows() const { return static_cast<int>(rows.size()); }
  bool has_edits() const { return !edits.empty() || has_allow_lists_; }

  int num_sequences = 0;  // rows without padding
  int num_steps = 0;
  bool feeds_two = false;  // some row feeds two tokens at first
  bool keeps_logits = false;

  CudaDraftTokens first;  // max_row_tokens per row
  CudaDraftTokens next;
  std::vector<int> first_logits_tokens;
  std::vector<CudaDraftRow> rows;
  std::vector<CudaDraw> draws;
  std::vector<int> row_params;
  std::vector<int> kept_rows;
  std::vector<SamplingParams> params;
  std::vector<CudaRowEdits> row_edits;
  std::vector<TokenEdit> edits;

 private:
  void AddTokens(std::span<const TokenId> fed, int first_position,
                 int num_tokens, int max_accepted);
  CudaRowEdits AddEdits(const ScoreProcessors& processors,
                        const ScoreEdits& all, int num_generated);

  const CudaDraftLimits limits_;
  const int page_size_;
  const int vocab_size_;
  const int first_drafted_;
  bool has_allow_lists_ = false;
};

// True if the device can sample drafts for the sequence: its score edits depend
// only on the number of tokens, and fit even if all rows have as many.
bool CanDraftOnDevice(const DraftSequence& sequence,
                      const CudaDraftLimits& limits, int vocab_size);

}  // namespace espalier
