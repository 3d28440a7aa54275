#include "tests/sim/sim_model.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace espalier::testing {
namespace {

// The output function of SplitMix64 (Steele et al. 2014,
// https://doi.org/10.1145/2660193.2660195).
uint64_t MixBits(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

constexpr int kMaxContext = 256;
constexpr int64_t kPageBytes = 1000;
constexpr absl::Duration kTimeOfToken = absl::Microseconds(1);

ModelDescription DescribeSim(const SimModelOptions& options) {
  const bool has_pages = options.memory == SimModelOptions::Memory::kPages;
  return {.vocab_size = options.vocab_size,
          .max_context = kMaxContext,
          .eos_token_ids = options.eos_token_ids,
          .default_max_new_tokens = 8,
          .num_pages = options.num_pages,
          .page_size = options.page_size,
          .has_shareable_pages = options.has_shareable_pages && has_pages,
          .num_host_slots = options.num_host_slots,
          .page_bytes = kPageBytes,
          .host_bandwidth =
              options.load_time == 0
                  ? 0
                  : kPageBytes / (options.load_time *
                                  absl::ToDoubleSeconds(kTimeOfToken)),
          .limits = options.limits};
}

}  // namespace

SimModel::SimModel(const SimModelOptions& options, FindAsker find_asker)
    : options_(options),
      description_(DescribeSim(options)),
      find_asker_(std::move(find_asker)) {
  if (options.memory == SimModelOptions::Memory::kPages) {
    cells_.resize(size_t{1} * options.num_pages * options.page_size);
    pages_.resize(options.num_pages);
    host_cells_.resize(size_t{1} * options.num_host_slots * options.page_size);
    host_pages_.resize(options.num_host_slots);
  }
}

uint64_t SimModel::Extend(uint64_t path, TokenId token) const {
  return std::max<uint64_t>(
      1, MixBits((path == 0 ? options_.seed : path) ^ MixBits(token + 1)));
}

void SimModel::WriteLogits(uint64_t path, std::span<float> logits) const {
  if (MixBits(path) % 100 < options_.disagree_percent) path = MixBits(path);
  for (size_t token = 0; token < logits.size(); ++token) {
    const uint64_t bits = MixBits(path + token);
    const bool impossible = bits % 100 < options_.impossible_percent;
    logits[token] = impossible ? -std::numeric_limits<float>::infinity()
                    : options_.num_levels > 0
                        ? static_cast<float>((bits >> 40) % options_.num_levels)
                        : static_cast<float>(bits >> 40) * 0x1p-22f;
  }
  for (const TokenId eos : options_.eos_token_ids) {
    logits[eos] += options_.eos_boost;
  }
}

std::span<float> SimModel::Line(std::span<float> logits, int line) const {
  return logits.subspan(size_t{1} * line * options_.vocab_size,
                        options_.vocab_size);
}

absl::Status SimModel::CheckLimits(const StepPlan& plan) const {
  const StepLimits& limits = description_.limits;
  int num_selected = 0;
  for (const PlanSelection& selection : plan.selections) {
    num_selected += selection.num_plan_rows();
  }
  const int num_prefill_rows =
      static_cast<int>(plan.rows.size()) - num_selected;
  const int num_tokens = static_cast<int>(plan.tokens.size());
  if (num_tokens > limits.max_step_tokens ||
      plan.num_logits > limits.max_beams ||
      num_prefill_rows > limits.max_prefill_rows) {
    return Internal("a plan of ", num_tokens, " tokens, ", plan.num_logits,
                    " rows of logits and ", num_prefill_rows,
                    " rows of prefills");
  }
  return absl::OkStatus();
}

absl::Status SimModel::Forward(const StepPlan& plan, std::span<float> logits) {
  const absl::Status fits = CheckLimits(plan);
  CHECK(fits.ok()) << fits.ToString();
  if (options_.memory == SimModelOptions::Memory::kSequences) {
    RETURN_IF_ERROR(ForkAndFinish(plan));
    for (const PlanRow& row : plan.rows) {
      RETURN_IF_ERROR(FeedSequence(plan, row, logits));
    }
    return absl::OkStatus();
  }
  lost_rows_.assign(plan.rows.size(), false);
  SwapPages(plan);
  CopyPages(plan);
  // All rows write before one reads: a cell written by two rows shows. A row
  // may read what another of the plan feeds before it.
  for (size_t i = 0; i < plan.rows.size(); ++i) WriteTokens(plan, i);
  std::vector<size_t> order(plan.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.rows[a].first_position < plan.rows[b].first_position;
  });
  for (const size_t i : order) RETURN_IF_ERROR(FeedPages(plan, i, logits));
  return CheckAskers(plan);
}

absl::Status SimModel::ForkAndFinish(const StepPlan& plan) {
  for (const SequenceFork& fork : plan.forks) {
    const auto parent = sequences_.find(fork.parent);
    if (parent == sequences_.end()) {
      return Internal("fork of unknown sequence ", fork.parent);
    }
    const SequenceState state = parent->second;
    if (!sequences_.emplace(fork.child, state).second) {
      return Internal("fork into known sequence ", fork.child);
    }
  }
  for (const SequenceId sequence : plan.finished) {
    if (sequences_.erase(sequence) == 0 && !has_lost_plans_) {
      return Internal("unknown sequence ", sequence, " finished");
    }
  }
  return absl::OkStatus();
}

absl::Status SimModel::FeedSequence(const StepPlan& plan, const PlanRow& row,
                                    std::span<float> logits) {
  SequenceState& state = sequences_[row.sequence];
  if (row.first_position != state.length) {
    return Internal("sequence ", row.sequence, " has ", state.length,
                    " tokens and is fed from position ", row.first_position);
  }
  const std::span<const TokenId> tokens = plan.row_tokens(row);
  for (int i = 0; i < row.num_tokens; ++i) {
    state.path = Extend(state.path, tokens[i]);
    const int line = i - (row.num_tokens - row.num_logits);
    if (line >= 0) {
      WriteLogits(state.path, Line(logits, row.first_logits + line));
    }
  }
  state.length += row.num_tokens;
  return absl::OkStatus();
}

void SimModel::SwapPages(const StepPlan& plan) {
  const int page_size = options_.page_size;
  for (const PageSave& save : plan.page_saves) {
    std::copy_n(cells_.begin() + save.page.value * page_size, page_size,
                host_cells_.begin() + save.slot.value * page_size);
    host_pages_[save.slot.value] = pages_[save.page.value];
  }
  for (const PageLoad& load : plan.page_loads) {
    std::copy_n(host_cells_.begin() + load.slot.value * page_size, page_size,
                cells_.begin() + load.page.value * page_size);
    pages_[load.page.value] = host_pages_[load.slot.value];
  }
}

void SimModel::CopyPages(const StepPlan& plan) {
  const int page_size = options_.page_size;
  for (const PageCopy& copy : plan.page_copies) {
    const auto from = cells_.begin() + copy.from.value * page_size;
    const auto to = cells_.begin() + copy.to.value * page_size;
    std::copy_n(from, copy.num_tokens, to);
    std::fill(to + copy.num_tokens, to + page_size, Cell());
    pages_[copy.to.value] = {pages_[copy.from.value].owner, false};
  }
}

void SimModel::WriteTokens(const StepPlan& plan, size_t row_idx) {
  const PlanRow& row = plan.rows[row_idx];
  const std::span<const TokenId> tokens = plan.row_tokens(row);
  const std::span<const PageId> pages = plan.row_pages(row_idx);
  for (int i = 0; i < row.num_tokens; ++i) {
    const int position = row.first_position + i;
    CellAt(pages, position) = {tokens[i], 0};
    Page& page = pages_[pages[position / options_.page_size].value];
    if (position % options_.page_size == 0) page.owner = 0;
    page.is_poisoned = false;
  }
}

absl::Status SimModel::FeedPages(const StepPlan& plan, size_t row_idx,
                                 std::span<float> logits) {
  const PlanRow& row = plan.rows[row_idx];
  const std::span<const TokenId> tokens = plan.row_tokens(row);
  const std::span<const PageId> pages = plan.row_pages(row_idx);
  uint64_t path = 0;
  for (int position = 0; position < row.first_position; ++position) {
    const Cell& cell = CellAt(pages, position);
    path = Extend(path, cell.token);
    if (cell.path == path) continue;
    if (cell.path == 0 && awaits_lost_plan_) {
      lost_rows_[row_idx] = true;
      return absl::OkStatus();
    }
    return Internal("row ", row_idx, " of sequence ", row.sequence,
                    " attends to page ", pages[position / options_.page_size],
                    cell.path == 0 ? ", which nobody has written"
                                   : ", which is of another path",
                    ", at position ", position);
  }
  for (int i = 0; i < row.num_tokens; ++i) {
    Cell& cell = CellAt(pages, row.first_position + i);
    if (cell.token != tokens[i] || cell.path != 0) {
      return Internal("two rows write position ", row.first_position + i,
                      " of sequence ", row.sequence);
    }
    path = Extend(path, tokens[i]);
    cell.path = path;
    const int line = i - (row.num_tokens - row.num_logits);
    if (line >= 0) WriteLogits(path, Line(logits, row.first_logits + line));
  }
  return absl::OkStatus();
}

absl::Status SimModel::CheckAskers(const StepPlan& plan) {
  std::vector<size_t> rows(plan.num_logits);  // plan row of each row of logits
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    std::fill_n(rows.begin() + plan.rows[row].first_logits,
                plan.rows[row].num_logits, row);
  }
  for (const PlanSelection& selection : plan.selections) {
    const SmallVector<int> first_logits = selection.FirstLogits();
    for (int i = 0; i < selection.num_plan_rows(); ++i) {
      RETURN_IF_ERROR(
          CheckAsker(plan, rows[first_logits[i]], selection.request));
    }
  }
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    RETURN_IF_ERROR(
        CheckAsker(plan, rows[scoring.first_logits], scoring.request));
  }
  return absl::OkStatus();
}

absl::Status SimModel::CheckAsker(const StepPlan& plan, size_t row_idx,
                                  RequestId request) {
  const Asker asker = find_asker_(request);
  if (asker.owner == 0) return absl::OkStatus();  // it has ended
  if (lost_rows_[row_idx]) return absl::OkStatus();
  const PlanRow& row = plan.rows[row_idx];
  const std::span<const PageId> pages = plan.row_pages(row_idx);
  const int length = std::min<int>(row.first_position + row.num_tokens,
                                   std::ssize(asker.prompt));
  for (int position = 0; position < length; ++position) {
    if (CellAt(pages, position).token == asker.prompt[position]) continue;
    return Internal("request ", request, " has another prompt in page ",
                    pages[position / options_.page_size]);
  }
  for (const PageId page : pages) {
    int64_t& owner = pages_[page.value].owner;
    if (owner == 0) owner = asker.owner;
    if (owner == asker.owner) continue;
    return Internal("request ", request, " has page ", page,
                    ", which it must not share");
  }
  return absl::OkStatus();
}

void SimModel::Lose(const StepPlan& plan) {
  has_lost_plans_ = true;
  if (options_.memory == SimModelOptions::Memory::kSequences) {
    ForkAndFinish(plan).IgnoreError();
    return;
  }
  for (const PageSave& save : plan.page_saves) {
    std::fill_n(host_cells_.begin() + save.slot.value * options_.page_size,
                options_.page_size, Cell());
  }
  for (const PageLoad& load : plan.page_loads) {
    Poison(load.page, 0, options_.page_size);
  }
  for (const PageCopy& copy : plan.page_copies) {
    Poison(copy.to, 0, options_.page_size);
  }
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    for (int j = 0; j < row.num_tokens; ++j) {
      const int position = row.first_position + j;
      Poison(plan.row_pages(i)[position / options_.page_size],
             position % options_.page_size, 1);
    }
  }
}

absl::Duration SimModel::TimeOf(const StepPlan& plan) {
  return (5 + std::ssize(plan.tokens)) * kTimeOfToken;
}

void SimModel::PoisonFree(const PagePool& pool, const HostPool& host) {
  for (size_t i = 0; i < host_pages_.size(); ++i) {
    const HostSlotId slot{static_cast<int32_t>(i)};
    // The pool has as many slots as the model, or none if preempted pages are
    // dropped.
    if (slot.value < host.num_slots() && host.ref_count(slot) > 0) continue;
    if (host_pages_[i].is_poisoned) continue;
    std::fill_n(host_cells_.begin() + i * options_.page_size,
                options_.page_size, Cell());
    host_pages_[i] = Page();
  }
  for (size_t i = 0; i < pages_.size(); ++i) {
    const PageId page{static_cast<int32_t>(i)};
    if (pages_[i].is_poisoned || pool.ref_count(page) > 0) continue;
    Poison(page, 0, options_.page_size);
    pages_[i] = Page();
  }
}

void SimModel::Poison(PageId page, int first, int count) {
  std::fill_n(cells_.begin() + page.value * options_.page_size + first, count,
              Cell());
}

SimModel::Cell& SimModel::CellAt(std::span<const PageId> pages, int position) {
  const int page_size = options_.page_size;
  return cells_[pages[position / page_size].value * page_size +
                position % page_size];
}

}  // namespace espalier::testing
