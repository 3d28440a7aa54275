// CudaInputBatch: one step's input batch for the device, in host vectors. Rows
// of beams come first, then tokens of prompts:
//
//   tokens  [ group 0: by slot | group 1 | ... | prompt | prompt | ... ]
//   logits  [ group 0: by rank | group 1 | ... | prompts that end      ]
//
// The device keeps the tokens that rows of beams feed
// (kernels/resident/cuda_resident.h), so almost nothing here changes between
// two steps of the same groups. cuda_batch_arrays.h lists the arrays.
//
// In a request that selects per row (kRows), each row is a group of one slot
// for the device. In a request whose beams feed draft paths, each row of logits
// is a group without a slot. Neither is scheduled asynchronously.
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
#include "executor/cuda/batch/cuda_list_masks.h"
#include "executor/cuda/batch/cuda_verify_rows.h"
#include "executor/selection_rows.h"
#include "kernels/attention/cuda_attention_plan.h"

namespace espalier {

// A group's selection from a step's logits: the common part of PlanSelection
// and GroupContinuation.
struct CudaGroupRequest {
  SelectionKind kind = SelectionKind::kBeams;
  int num_candidates = 1;
  bool gumbel_top_k = false;  // as in RowSelection
  int num_generated = 0;
  const SelectionParams* params = nullptr;  // not null
  // As in PlanSelection and DrawSelection, by rank; empty for continuations. If
  // processors need histories and none are given, the device has them.
  std::span<const std::vector<TokenId>> histories = {};
  std::span<const std::span<const TokenId>> allowed = {};
  // The constraint whose masks rows have, in CudaConstraints; -1: none. Without
  // places, the device has them.
  int constraint = -1;
  std::span<const ConstraintPlace> places = {};
  bool may_lack = false;  // as in BeamSelection
  std::span<const int> slots = {};
  std::span<const int> samples = {};
  // If rows of logits differ: the draw (instead of `samples`) or selection of
  // each row, with edits of its own. The device keeps no beams of such a group.
  std::span<const SelectionRow> logits_rows = {};
  // [plan rows], drafts that rejection verifies; otherwise empty.
  std::span<const std::vector<TokenId>> drafts = {};
  bool has_draft_rows = false;  // logits that drafts were sampled from exist
};

// Source (encoder output) of a decoder token.
struct CudaTokenSource {
  int table = 0;   // CudaStepMemory::source_table
  int length = 0;  // 0: no source
};

// Location of a result on the device, or of a part: kRows has one part per row,
// beams with draft paths one per row of logits.
struct CudaAnswerPart {
  int group_idx = 0;
  int first_candidate = 0;
  int first_rank = 0;  // rank of its first row
  CudaLogprobPlace log_probs = {};
};

// Attention work lists and the capacity for history edits are planned for
// lengths rounded up to a multiple of this. They then stay valid for that many
// steps, and the longest chunk of a work list is mostly filled.
inline constexpr int kPlannedPositions = 64;
// Returns the next multiple of kPlannedPositions above `position`.
inline int PlannedPositions(int position) {
  return (position / kPlannedPositions + 1) * kPlannedPositions;
}

// Appends a row's list of edits to `edits`, and returns its place.
CudaRowEdits AppendEdits(const ScoreEdits::View& view,
                         const ScoreProcessors& processors,
                         std::vector<TokenEdit>* edits);

struct CudaInputBatch : CudaBatchArrays<HostArray> {
  // Dimensions of the model, and capacity for edits.
  struct Shape {
    int vocab_size = 1;
    int page_size = 1;
    int max_positions = 1;  // covered by a page table
    int max_edits = 0;
    int first_list_mask = 0;  // place of the mask of CudaListMasks' first slot
  };
  // `list_masks` outlives it; null: all lists of legal tokens are edits.
  explicit CudaInputBatch(const Shape& of, CudaListMasks* list_masks = nullptr)
      : shape(of), log_probs(of.vocab_size), list_masks_(list_masks) {}

  // Adds the group's rows, one per slot; returns parts by rank.
  // REQUIRES: there are no prompts yet.
  std::vector<CudaAnswerPart> AddBeams(const CudaGroup& group,
                                       const CudaGroupRequest& request);
  // Adds tokens at consecutive positions, which the device may advance by up to
  // `num_ahead`; returns the last token's index.
  int AddPrompt(std::span<const TokenId> tokens, int first_position, int table,
                const CudaTokenSource& source = {}, int num_ahead = 0);
  // Declares that consecutive whole prompts, from `first_token` on, have the
  // same pages below position `kv_end`. Attention reads these once for all.
  // REQUIRES: kv_end is a multiple of the page size, and no prompt's first
  // position is below it.
  void SharePages(int first_token, int num_tokens, int kv_end);
  // Adds rows of logits after the tokens `last_tokens`, which are by rank, or
  // as request.logits_rows if that is set.
  std::vector<CudaAnswerPart> AddPromptLogitsRows(
      const CudaGroup& group, const CudaGroupRequest& request,
      std::span<const int> last_tokens, std::span<const float> cum_log_probs);
  // Adds rows of logits after the tokens from `first_token` on; `next` are the
  // tokens that follow these. `num_text_tokens` as in
  // CudaBatchLogprobs::AskKnown.
  // REQUIRES: all other rows were added before.
  CudaLogprobPlace AddPromptLogprobRows(int first_token,
                                        std::span<const TokenId> next,
                                        int num_logprobs,
                                        int num_text_tokens = 0);
  // Adds padding rows after the rows of beams, up to `padded_rows`.
  // REQUIRES: there are no prompts yet.
  void Pad(int padded_rows, int padding_table);
  // Adds padding tokens after the prompts, up to `padded_tokens` in the batch,
  // each with a row of logits after all others.
  // REQUIRES: each token has a row of logits.
  void PadPrompts(int padded_tokens, int padding_table);
  // Places `padded_rows` rows of draft logits after all rows of logits.
  // REQUIRES: the last call; padded_rows >= verified.num_draft_rows().
  void PlaceDraftRows(int padded_rows);

  int num_tokens() const { return static_cast<int>(token_tables.size()); }
  int num_logits_rows() const { return static_cast<int>(row_groups.size()); }
  int num_groups() const { return group_count[0]; }
  int num_draws() const { return draw_count[0]; }
  // Sequences whose drafts are verified by rejection.
  int num_verified() const { return verify_count[0]; }
  // Rows of logits in the batch, and rows of draft logits.
  int num_verify_rows() const {
    return static_cast<int>(verify_row_sequences.size());
  }
  int num_logprob_queries() const {
    return logprob_counts[0].num_logprob_queries;
  }
  bool has_edits() const { return HasReaders(CudaArrayReaders::kWithEdits); }
  // True if some row has a token mask.
  bool has_masks() const { return HasReaders(CudaArrayReaders::kWithMasks); }
  // True if some row's mask is of texts without stacks.
  bool has_states() const { return has_states_; }
  // True if some row's mask is of items.
  bool has_items() const { return has_items_; }
  // True if some row's mask is of texts with stacks.
  bool has_stacks() const { return has_stacks_; }
  // True if the device builds some rows' edits from histories that it keeps.
  bool has_device_edits() const {
    return HasReaders(CudaArrayReaders::kWithDeviceEdits);
  }
  // True if some row is selected from after its edits.
  bool has_edited_rows() const {
    return HasReaders(CudaArrayReaders::kWithEditedRows);
  }
  // True if the step reads arrays with these readers. Such arrays have an entry
  // for each row of logits if they are by_logits_row; arrays that are not read
  // are empty.
  bool HasReaders(CudaArrayReaders readers) const {
    return (readers_ >> static_cast<int>(readers) & 1) != 0;
  }

  const Shape shape;
  int num_rows = 0;          // one per slot of a beam, and padding
  int num_candidates = 0;    // sampled tokens included
  int max_candidates = 0;    // per group that CudaSelect serves; 0: no group
  int max_group_rows = 0;    // per group that CudaSelect serves
  int max_gumbel_top_k = 0;  // candidates per row with noise; 0: no such row
  int num_sampled = 0;       // draws, except drafts verified by rejection
  int64_t num_device_edits = 0;  // capacity for edits built on the device

  // Masks of lists that the device does not have.
  struct NewMask {
    int mask = 0;  // its place
    std::span<const TokenId> list;
  };
  std::vector<NewMask> new_masks;

  // Inputs of attention planning.
  std::vector<CudaAttentionRow> attention_rows;
  std::vector<CudaSharedPrefix> shared_runs;
  // Inputs of cross-attention planning. Consecutive tokens with one source are
  // one row, so that the source is read once for all beams of a group.
  std::vector<CudaAttentionRow> cross_rows;

  // Prompts only.
  std::vector<TokenId> prompt_tokens;  // tokens [num_rows, num_tokens)
  std::vector<int> prompt_positions;
  std::vector<int> prompt_logits_tokens;  // logits [num_rows, num_logits_rows)
  std::vector<float> prompt_cum_log_probs;
  std::vector<CudaDraw> prompt_draws;  // the last of num_draws()

  CudaBatchLogprobs log_probs;
  CudaVerifyRows verified;

 private:
  // Rows of logits of the group's ranks [first_rank, first_rank +
  // num_logits_rows), and their slots.
  struct LogitsRows {
    int first_logits_row = 0;
    int first_rank = 0;
    int num_logits_rows = 1;
    int first_slot = 0;
    int num_slots = 1;
    int num_draws = 0;  // kDraws only
  };
  // Marks the arrays with these readers as read by the step. They are written
  // from now on; rows that exist already get inactive entries.
  void AddReaders(CudaArrayReaders readers);
  // Appends rows of logits with inactive entries in all arrays.
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
  // Sets the edits of `count` rows of logits.
  // REQUIRES: these rows have no edits yet.
  void SetEdits(int first_logits_row, int count, const CudaRowEdits& of_rows);
  CudaRowEdits AddView(const CudaGroupRequest& request,
                       const ScoreEdits::View& view);
  CudaRowEdits AddList(const CudaGroupRequest& request, int rank);
  // Gives each row of logits the place whose mask it has.
  void AddMasks(const CudaGroup& group, const CudaGroupRequest& request,
                const LogitsRows& logits_rows);
  // True if a list is a mask instead of edits.
  bool IsMasked(std::span<const TokenId> list) const {
    return list_masks_ != nullptr && std::ssize(list) > kMaxListEdits;
  }
  // Adds the place of a state to mask_frames.
  void AddPlace(const PushdownPlaces* places, int32_t state);
  // Gives a row of logits the mask of a list.
  void SetListMask(const CudaGroupRequest& request,
                   std::span<const TokenId> list, int logits_row);
  // Adds the edits of request.logits_rows. Consecutive rows share equal lists.
  void AddRowEdits(const CudaGroupRequest& request, int first_logits_row);
  void AddVerified(const CudaGroupRequest& request, int first_logits_row,
                   int first_candidate);
  void AddDeviceEdits(const CudaGroup& group, const CudaGroupRequest& request,
                      const LogitsRows& logits_rows);
  CudaEditParams AddEditParams(const CudaGroup& group,
                               const CudaGroupRequest& request);
  // Has the rows selected from after their edits, if the request normalises
  // over what these leave.
  // REQUIRES: their edits were added.
  void AddEditedRows(const CudaGroup& group, const CudaGroupRequest& request,
                     const LogitsRows& logits_rows);
  void AddAttention(const CudaGroup& group, int first_row);
  // Adds cross-attention of the last `num_queries` tokens.
  void AddCrossAttention(const CudaTokenSource& source, int num_queries);
  // Appends padding tokens up to `size` tokens.
  void PadTokens(int size, int padding_table);

  // Bit mask of CudaArrayReaders.
  unsigned readers_ = 1u << static_cast<int>(CudaArrayReaders::kAll);
  bool has_states_ = false;
  bool has_items_ = false;
  bool has_stacks_ = false;
  // The last list that was added for the current request. Rows with equal edits
  // share it.
  std::optional<CudaRowEdits> last_edits_;
  CudaListMasks* list_masks_;
};

}  // namespace espalier
