// CudaInputBatch: one step's batch as the device will see it, in vectors of
// the host. Rows of beams come first, then tokens of prompts:
//
//   tokens  [ group 0: a slot each | group 1 | ... | prompt | prompt | ... ]
//   logits  [ group 0: a rank each | group 1 | ... | of prompts that end   ]
//
// What the rows of beams feed the device knows
// (kernels/resident/cuda_resident.h), so between two steps of the same groups
// almost nothing here changes. Its arrays are those of cuda_batch_arrays.h.
//
// Where a request asks for candidates of each of its rows (kRows), each is a
// group of one slot for the device; no such group runs ahead. Nor does one
// whose beams feed paths: each of its rows of logits is a group without a slot.
//
//   CudaInputBatch batch(shape);
//   batch.AddBeams(group, request);
//   const int last = batch.AddPrompt(tokens, first_position, table);
//   batch.AddPromptLogitsRows(group, request, {&last, 1}, {&cum_log_prob, 1});
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/cuda/batch/cuda_batch_logprobs.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_verify_rows.h"
#include "executor/selection_rows.h"
#include "kernels/attention/cuda_attention.h"

namespace espalier {

// What a group asks of a step's logits: what PlanSelection and
// GroupContinuation have in common.
struct CudaGroupRequest {
  int num_candidates = 1;
  int num_generated = 0;
  const SelectionParams* params = nullptr;  // not null
  // As in PlanSelection, by rank; of continuations there are none. Histories
  // that processors need and that are not given the device has.
  std::span<const std::vector<TokenId>> histories = {};
  std::span<const std::span<const TokenId>> allowed = {};
  std::span<const int> slots = {};
  std::span<const int> samples = {};
  // Where its rows of logits differ: what each draws, in place of `samples`, or
  // selects, and with its own edits. The group keeps no beams then.
  std::span<const SelectionRow> logits_rows = {};
  // By row of the plan: the drafts of these, if rejection verifies them; and
  // whether there are rows of logits that they were drawn from.
  std::span<const std::vector<TokenId>> drafts = {};
  bool has_draft_rows = false;
};

// Where tokens of a decoder find their source.
struct CudaTokenSource {
  int table = 0;   // CudaStepMemory::source_table
  int length = 0;  // 0: there is none
};

// Where an answer will be, or a part of it: of kRows there is a part a row, of
// paths of beams one a row of logits.
struct CudaAnswerPart {
  int group_idx = 0;
  int first_candidate = 0;
  int first_rank = 0;  // of the rows that its candidates follow
  CudaLogprobPlace log_probs = {};
};

// What is planned by lengths is planned for lengths up to the next multiple of
// this, a function of the position alone: work lists of attention, and room for
// edits that follow from histories, hold for that many steps; and a list's
// longest chunk is mostly filled.
inline constexpr int kPlannedPositions = 64;
// The end of what `position` is planned in: the next multiple above it.
inline int PlannedPositions(int position) {
  return (position / kPlannedPositions + 1) * kPlannedPositions;
}

struct CudaInputBatch : CudaBatchArrays<HostArray> {
  // Of the model, and room for edits.
  struct Shape {
    int vocab_size = 1;
    int page_size = 1;
    int max_positions = 1;  // that a table reaches
    int max_edits = 0;
  };
  explicit CudaInputBatch(const Shape& of)
      : shape(of), log_probs(of.vocab_size) {}

  // The group's rows, one a slot. Before all prompts. Parts are by rank.
  std::vector<CudaAnswerPart> AddBeams(const CudaGroup& group,
                                       const CudaGroupRequest& request);
  // Tokens at consecutive positions, which the device may move on by up to
  // `num_ahead`; returns the last one's index.
  int AddPrompt(std::span<const TokenId> tokens, int first_position, int table,
                const CudaTokenSource& source = {}, int num_ahead = 0);
  // Tokens of some prompts, whole ones that follow each other, whose tables
  // name the same pages below `kv_end`: these are read once for all of them.
  // REQUIRES: kv_end is a multiple of the page size, and no prompt's first
  // position is below it.
  void SharePages(int first_token, int num_tokens, int kv_end);
  // Rows of logits of the tokens `last_tokens`, by rank; or by
  // request.logits_rows.
  std::vector<CudaAnswerPart> AddPromptLogitsRows(
      const CudaGroup& group, const CudaGroupRequest& request,
      std::span<const int> last_tokens, std::span<const float> cum_log_probs);
  // Rows of logits of tokens from `first_token` on, which `next` follow. After
  // all other rows.
  CudaLogprobPlace AddPromptLogprobRows(int first_token,
                                        std::span<const TokenId> next,
                                        int num_logprobs);
  // Rows of nobody after those of beams, up to `padded_rows`.
  // REQUIRES: there are no prompts yet.
  void Pad(int padded_rows, int padding_table);
  // Tokens of nobody after those of prompts, up to `padded_tokens` of the
  // batch, with a row of logits each, after all others.
  // REQUIRES: each token has a row of logits.
  void PadPrompts(int padded_tokens, int padding_table);
  // Rows of logits of drafts, `padded_rows` of them, after all others. Last.
  // REQUIRES: padded_rows >= verified.num_draft_rows().
  void PlaceDraftRows(int padded_rows);

  int num_tokens() const { return static_cast<int>(token_tables.size()); }
  int num_logits_rows() const { return static_cast<int>(row_groups.size()); }
  int num_groups() const { return group_count[0]; }
  int num_draws() const { return draw_count[0]; }
  // Sequences whose drafts rejection verifies, and all rows of logits that
  // these are among.
  int num_verified() const { return verify_count[0]; }
  int num_verify_rows() const {
    return static_cast<int>(verify_row_sequences.size());
  }
  int num_logprob_queries() const {
    return logprob_counts[0].num_logprob_queries;
  }
  bool has_edits() const { return HasReaders(CudaArrayReaders::kWithEdits); }
  // Whether the device makes some rows' edits, of histories that it keeps.
  bool has_device_edits() const {
    return HasReaders(CudaArrayReaders::kWithDeviceEdits);
  }
  // Whether the step reads arrays for such steps. Those by row of
  // logits that it reads have an entry for each row, others have none.
  bool HasReaders(CudaArrayReaders readers) const {
    return (readers_ >> static_cast<int>(readers) & 1) != 0;
  }

  const Shape shape;
  int num_rows = 0;        // of beams
  int num_candidates = 0;  // and tokens drawn
  int max_candidates = 0;  // of a group that is selected for; 0: there is none
  int max_group_rows = 0;  // of a group that is selected for
  int max_gumbel_top_k = 0;  // of a row with noise; 0: there is none
  int num_sampled = 0;  // draws but those of drafts that rejection verifies
  int64_t num_device_edits = 0;  // room for those that the device makes

  // What attention is planned for.
  std::vector<CudaAttentionRow> attention_rows;
  std::vector<CudaSharedPrefix> shared_runs;
  // And cross-attention: tokens of one source that follow each other are one
  // row, so that it is read once for all of a group's beams.
  std::vector<CudaAttentionRow> cross_rows;

  // Of prompts only.
  std::vector<TokenId> prompt_tokens;  // tokens [num_rows, num_tokens)
  std::vector<int> prompt_positions;
  std::vector<int> prompt_logits_tokens;  // logits [num_rows, num_logits_rows)
  std::vector<float> prompt_cum_log_probs;
  std::vector<CudaDraw> prompt_draws;  // the last of num_draws()

  CudaBatchLogprobs log_probs;
  CudaVerifyRows verified;

 private:
  // Rows of logits of the group's beams of ranks [first_rank, first_rank +
  // num_logits_rows), and the slots of these.
  struct LogitsRows {
    int first_logits_row = 0;
    int first_rank = 0;
    int num_logits_rows = 1;
    int first_slot = 0;
    int num_slots = 1;
    int num_draws = 0;  // if the group is of samples
  };
  // The step reads arrays for such steps, so they are written from now on.
  // Rows before say nothing in them.
  void AddReaders(CudaArrayReaders readers);
  // Rows of logits that no array says anything of, after all others.
  void AddLogitsRows(int count);
  CudaAnswerPart AddGroup(const CudaGroup& group,
                          const CudaGroupRequest& request,
                          const LogitsRows& logits_rows);
  CudaAnswerPart AddRow(const CudaGroup& group, const CudaGroupRequest& request,
                        int logits_row, int rank);
  void AddDraws(const CudaGroup& group, const CudaGroupRequest& request,
                const LogitsRows& logits_rows);
  void AddGumbelTopK(const CudaGroupRequest& request,
                     const LogitsRows& logits_rows);
  void AddPromptDraws(const CudaGroupRequest& request, int first_logits_row,
                      int num_logits_rows, int first_candidate);
  void AddEdits(const CudaGroup& group, const CudaGroupRequest& request,
                const LogitsRows& logits_rows);
  // Of `count` rows of logits, whose arrays say that they have none.
  void SetEdits(int first_logits_row, int count, const CudaRowEdits& of_rows);
  CudaRowEdits AddView(const CudaGroupRequest& request,
                       const ScoreEdits::View& view);
  CudaRowEdits AddList(const CudaGroupRequest& request, int rank);
  // Of request.logits_rows. Those that follow each other share equal lists.
  void AddRowEdits(const CudaGroupRequest& request, int first_logits_row);
  void AddVerified(const CudaGroupRequest& request, int first_logits_row,
                   int first_candidate);
  void AddDeviceEdits(const CudaGroup& group, const CudaGroupRequest& request,
                      const LogitsRows& logits_rows);
  CudaEditParams AddEditParams(const CudaGroup& group,
                               const CudaGroupRequest& request);
  void AddAttention(const CudaGroup& group, int first_row);
  // Of the last `num_queries` tokens.
  void AddCrossAttention(const CudaTokenSource& source, int num_queries);
  // Tokens of nobody, up to `size`.
  void PadTokens(int size, int padding_table);

  // A bit for each of CudaArrayReaders.
  unsigned readers_ = 1u << static_cast<int>(CudaArrayReaders::kAll);
  // The last list that was added for the request whose rows are being added;
  // rows with equal edits share it.
  std::optional<CudaRowEdits> last_edits_;
};

}  // namespace espalier
