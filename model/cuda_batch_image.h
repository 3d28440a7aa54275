// CudaBatchImage: one step's batch as the device will see it, in vectors of
// the host. Rows of beams come first, then tokens of prompts:
//
//   tokens  [ group 0: a slot each | group 1 | ... | prompt | prompt | ... ]
//   lines   [ group 0: a rank each | group 1 | ... | of prompts that end   ]
//
// What the rows of beams feed the device knows (kernels/cuda_resident.h), so
// between two steps of the same groups almost nothing here changes.
//
//   CudaBatchImage image(shape);
//   image.AddBeams(group, request);
//   const int last = image.AddPrompt(tokens, first_position, table);
//   image.AddPromptLines(group, request, {&last, 1});
//
// Thread rule: a plain value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/cuda_attention.h"
#include "kernels/cuda_resident.h"
#include "kernels/cuda_select.h"
#include "model/cuda_groups.h"

namespace espalier {

// What a group asks of a step's logits: what PlanSelection and
// GroupContinuation have in common.
struct CudaGroupRequest {
  int num_candidates = 1;
  int num_generated = 0;
  const SelectionRule* rule = nullptr;  // not null
  // Of each live row, if the processors need them.
  std::span<const std::vector<TokenId>> histories;
};

// Where a group's answer will be.
struct CudaAnswerPlace {
  int group_idx = 0;
  int first_candidate = 0;
};

struct CudaBatchImage {
  // Of the model.
  struct Shape {
    int vocab_size = 1;
    int page_size = 1;
    int max_positions = 1;  // that a table reaches
  };
  explicit CudaBatchImage(const Shape& of) : shape(of) {}

  // The group's rows, one a slot. Before all prompts.
  CudaAnswerPlace AddBeams(const CudaGroup& group,
                           const CudaGroupRequest& request);
  // Tokens at consecutive positions; returns the last one's index.
  int AddPrompt(std::span<const TokenId> tokens, int first_position, int table);
  // Lines of logits of the tokens `last_tokens`, by rank.
  CudaAnswerPlace AddPromptLines(const CudaGroup& group,
                                 const CudaGroupRequest& request,
                                 std::span<const int> last_tokens,
                                 std::span<const float> cum_log_probs);
  // Rows of nobody, up to `padded_rows`. REQUIRES: there are no prompts.
  void Pad(int padded_rows, int padding_table);

  int num_tokens() const { return static_cast<int>(token_tables.size()); }
  int num_lines() const { return static_cast<int>(row_groups.size()); }
  int num_groups() const { return static_cast<int>(groups.size()); }

  const Shape shape;
  int num_rows = 0;  // of beams
  int num_candidates = 0;
  int max_candidates = 0;  // of a group

  std::vector<CudaResidentGroup> groups;
  std::vector<CudaSelectGroup> selections;  // [num_groups]
  std::vector<TokenId> eos_token_ids;
  std::vector<int> row_groups;          // [num_lines]
  std::vector<CudaRowEdits> row_edits;  // [num_lines]
  std::vector<TokenEdit> edits;
  std::vector<int> token_tables;  // [num_tokens]
  std::vector<CudaAttentionRow> attention_rows;
  std::vector<CudaSharedRun> shared_runs;

  // Of prompts only.
  std::vector<TokenId> prompt_tokens;  // tokens [num_rows, num_tokens)
  std::vector<int> prompt_positions;
  std::vector<int> prompt_logits_tokens;  // lines [num_rows, num_lines)
  std::vector<float> prompt_cum_log_probs;

 private:
  CudaAnswerPlace AddGroup(const CudaGroup& group,
                           const CudaGroupRequest& request, int num_lines);
  void AddEdits(const CudaGroupRequest& request, int num_lines);
  CudaRowEdits AddList(const CudaGroupRequest& request,
                       std::span<const TokenId> history);
  void AddAttention(const CudaGroup& group, int first_row);
};

}  // namespace espalier
