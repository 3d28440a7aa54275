// ToyModel: a language model without a network, for tests of everything around
// models. Its logits are a hash of the whole history, so any error in a
// sequence's history (a page shared wrongly, a missing copy, a fork of the
// wrong parent) changes them.
//
// It keeps histories in one of two ways, each an oracle for one half of the
// plans that it gets:
//   kPages      token ids in page cells, as keys and values are kept; history
//               is read back through a row's block table;
//   kSequences  a vector for each sequence, kept by plan.forks and
//               plan.finished alone.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "exec_request/model.h"

namespace espalier::testing {

struct ToyModelOptions {
  enum class Memory { kPages, kSequences };

  int vocab_size = 11;
  int max_context = 256;
  uint64_t seed = 1;
  std::vector<TokenId> eos_token_ids = {0};
  // Added to the logits of EOS ids; the others are uniform in [0, 4).
  float eos_boost = 0;
  // Percentage of tokens that are impossible (-inf) after a history.
  int impossible_percent = 0;
  // Number of last tokens that the logits depend on. If it is small, texts
  // repeat themselves.
  int num_tokens_read = std::numeric_limits<int>::max();
  int page_size = 3;
  int num_pages = 200;
  // The model reports that its pages are its only state; kPages only.
  bool has_shareable_pages = false;
  int num_host_slots = 0;  // needs kPages and has_shareable_pages
  Memory memory = Memory::kPages;
  StepLimits limits = {};  // as if of its executor
};

// The logits after `history`: a pure function of it and the options.
//   logits  [vocab_size]  f32  out
void ToyLogits(const ToyModelOptions& options, std::span<const TokenId> history,
               std::span<float> logits);

class ToyModel : public Model {
 public:
  explicit ToyModel(const ToyModelOptions& options);

  const ModelDescription& description() const override { return description_; }

  // Errors: kInternal if the plan is not valid: rows that do not continue their
  // sequence, forks of unknown sequences or into existing ones, unknown
  // sequences that finish, shapes that disagree. kPages checks only the shapes.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

  // Sequences with state; 0 in kPages.
  int num_sequences() const { return static_cast<int>(sequences_.size()); }

 private:
  absl::Status CheckShapes(const StepPlan& plan,
                           std::span<const float> logits) const;
  absl::Status ForkAndFinish(const StepPlan& plan);
  void SwapPages(const StepPlan& plan);
  void CopyPages(const StepPlan& plan);
  absl::Status Feed(const StepPlan& plan, size_t row_idx);
  std::vector<TokenId> History(const StepPlan& plan, size_t row_idx) const;
  int CellIndex(std::span<const PageId> pages, int position) const;

  const ToyModelOptions options_;
  const ModelDescription description_;
  std::vector<TokenId> cells_;       // [num_pages * page_size]
  std::vector<TokenId> host_cells_;  // [num_host_slots * page_size]
  std::unordered_map<SequenceId, std::vector<TokenId>> sequences_;
};

}  // namespace espalier::testing
