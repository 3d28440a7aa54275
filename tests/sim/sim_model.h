// SimModel: a table model for the simulator (simulation.h) that checks its
// inputs. Its logits are a hash of the path, so that a result shows any wrong
// token on the way; and every step checks the contents of its pages, so that a
// fault is found where it happens.
//
// It keeps its state in one of two ways:
//   kPages      in each cell of a page the token and the hash of the path that
//               ends with it, as keys and values depend on all before them. A
//               row's cells must be one path, which begins with the prompt of
//               its request. Pages are swapped with their cells. Cells of pages
//               and host slots that are free are poisoned, and so is what a
//               failed step would have written;
//   kSequences  the hash of each sequence, by plan.forks and plan.finished
//               alone.
//
// A page belongs to one *owner*: requests that may share pages have the same
// one (their salt), others one each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"

namespace espalier::testing {

struct SimModelOptions {
  enum class Memory { kPages, kSequences };

  int vocab_size = 11;
  uint64_t seed = 1;
  std::vector<TokenId> eos_token_ids = {0};
  float eos_boost = 0;         // added to the logits of EOS ids
  int impossible_percent = 0;  // share of tokens after a path with -inf
  int disagree_percent = 0;    // paths with another seed's logits
  int num_levels = 0;          // number of distinct logits, for ties; 0: many
  int page_size = 3;
  int num_pages = 200;
  bool has_shareable_pages = true;  // kPages only
  Memory memory = Memory::kPages;
  int num_host_slots = 0;  // kPages only
  // Time to load a page, in units of the time to feed a token; 0: not known.
  double load_time = 0;
  StepLimits limits = {};
};

class SimModel final : public Model {
 public:
  // The request of a row, and the owner of its pages.
  struct Asker {
    std::span<const TokenId> prompt;
    int64_t owner = 0;  // never 0
  };
  using FindAsker = std::function<Asker(RequestId)>;

  SimModel(const SimModelOptions& options, FindAsker find_asker);

  const ModelDescription& description() const override { return description_; }

  // Errors: kInternal if a row attends to wrong tokens, or the plan is not
  // valid.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

  // The plan fails before it has copied or fed anything.
  void Lose(const StepPlan& plan);
  // Set while a plan was lost and its planner has not been informed: rows of
  // the next plan may attend to the lost tokens. They write poison.
  void set_awaits_lost_plan(bool awaits) { awaits_lost_plan_ = awaits; }

  // Poisons pages and slots that are free.
  void PoisonFree(const PagePool& pool, const HostPool& host);

  // Returns the duration of a step, which does not affect results.
  static absl::Duration TimeOf(const StepPlan& plan);

  // Sequences with state; 0 in kPages.
  int num_sequences() const { return static_cast<int>(sequences_.size()); }

 private:
  struct Cell {
    TokenId token = -1;
    uint64_t path = 0;  // 0: poison
  };
  struct Page {
    int64_t owner = 0;  // 0: not known yet
    bool is_poisoned = true;
  };
  struct SequenceState {
    int length = 0;
    uint64_t path = 0;
  };

  uint64_t Extend(uint64_t path, TokenId token) const;
  void WriteLogits(uint64_t path, std::span<float> logits) const;
  std::span<float> Line(std::span<float> logits, int line) const;

  absl::Status CheckLimits(const StepPlan& plan) const;
  absl::Status ForkAndFinish(const StepPlan& plan);
  absl::Status FeedSequence(const StepPlan& plan, const PlanRow& row,
                            std::span<float> logits);

  void SwapPages(const StepPlan& plan);
  void CopyPages(const StepPlan& plan);
  void WriteTokens(const StepPlan& plan, size_t row_idx);
  absl::Status FeedPages(const StepPlan& plan, size_t row_idx,
                         std::span<float> logits);
  absl::Status CheckAskers(const StepPlan& plan);
  absl::Status CheckAsker(const StepPlan& plan, size_t row_idx,
                          RequestId request);
  void Poison(PageId page, int first, int count);
  Cell& CellAt(std::span<const PageId> pages, int position);

  const SimModelOptions options_;
  const ModelDescription description_;
  const FindAsker find_asker_;
  std::vector<Cell> cells_;  // [num_pages, page_size]
  std::vector<Page> pages_;  // [num_pages]
  // Pages of the host's slots, in the same layout.
  std::vector<Cell> host_cells_;
  std::vector<Page> host_pages_;
  std::unordered_map<SequenceId, SequenceState> sequences_;
  bool has_lost_plans_ = false;
  bool awaits_lost_plan_ = false;
  std::vector<bool> lost_rows_;  // rows of the running plan that write poison
};

}  // namespace espalier::testing
