#include "tests/toy_model.h"

#include <algorithm>
#include <limits>

#include "base/page_count.h"
#include "base/status.h"
#include "pages/page_table.h"

namespace espalier::testing {
namespace {

// A value that no history contains.
constexpr TokenId kGarbage = -1;

// The output function of SplitMix64 (Steele et al. 2014,
// https://doi.org/10.1145/2660193.2660195).
uint64_t Mix(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

ModelDescription Describe(const ToyModelOptions& options) {
  return {.vocab_size = options.vocab_size,
          .max_context = options.max_context,
          .eos_token_ids = options.eos_token_ids,
          .default_max_new_tokens = 8,
          .num_pages = options.num_pages,
          .page_size = options.page_size,
          .has_shareable_pages = options.has_shareable_pages,
          .num_host_slots = options.num_host_slots,
          .limits = options.limits};
}

}  // namespace

void ToyLogits(const ToyModelOptions& options, std::span<const TokenId> history,
               std::span<float> logits) {
  const size_t num_read =
      std::min<size_t>(history.size(), options.num_tokens_read);
  history = history.last(num_read);
  uint64_t hash = Mix(options.seed);
  for (const TokenId token : history) hash = Mix(hash ^ Mix(token + 1));
  for (size_t token = 0; token < logits.size(); ++token) {
    const uint64_t bits = Mix(hash + token);
    const bool impossible = bits % 100 < options.impossible_percent;
    logits[token] = impossible ? -std::numeric_limits<float>::infinity()
                               : static_cast<float>(bits >> 40) * 0x1p-22f;
  }
  for (const TokenId eos : options.eos_token_ids) {
    logits[eos] += options.eos_boost;
  }
}

ToyModel::ToyModel(const ToyModelOptions& options)
    : options_(options),
      description_(Describe(options)),
      cells_(options.num_pages * options.page_size, kGarbage),
      host_cells_(options.num_host_slots * options.page_size, kGarbage) {}

absl::Status ToyModel::Forward(const StepPlan& plan, std::span<float> logits) {
  RETURN_IF_ERROR(CheckShapes(plan, logits));
  if (options_.memory == ToyModelOptions::Memory::kSequences) {
    RETURN_IF_ERROR(ForkAndFinish(plan));
  } else {
    SwapPages(plan);
    CopyPages(plan);
  }
  // All rows write before one reads: a page written by two rows shows.
  for (size_t i = 0; i < plan.rows.size(); ++i) RETURN_IF_ERROR(Feed(plan, i));
  const int vocab_size = options_.vocab_size;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const std::vector<TokenId> history = History(plan, i);
    for (int line = 0; line < row.num_logits; ++line) {
      const size_t length = history.size() - row.num_logits + line + 1;
      ToyLogits(
          options_, std::span(history).first(length),
          logits.subspan((row.first_logits + line) * vocab_size, vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status ToyModel::CheckShapes(const StepPlan& plan,
                                   std::span<const float> logits) const {
  int num_tokens = 0;
  int num_logits = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const size_t end = row.first_position + row.num_tokens;
    if (row.first_token != num_tokens || row.first_logits != num_logits ||
        row.num_tokens < 1 || row.num_logits < 0 ||
        row.num_logits > row.num_tokens || row.first_position < 0 ||
        end > options_.max_context ||
        plan.row_pages(i).size() != NumPages(end, options_.page_size)) {
      return Internal("row ", i, " of sequence ", row.sequence, " is unsound");
    }
    num_tokens += row.num_tokens;
    num_logits += row.num_logits;
  }
  if (num_tokens != plan.tokens.size() || num_logits != plan.num_logits ||
      logits.size() != size_t{1} * num_logits * options_.vocab_size) {
    return Internal("the plan's rows have ", num_tokens, " tokens and ",
                    num_logits, " rows of logits; it says otherwise");
  }
  return absl::OkStatus();
}

absl::Status ToyModel::ForkAndFinish(const StepPlan& plan) {
  for (const SequenceFork& fork : plan.forks) {
    const auto parent = sequences_.find(fork.parent);
    if (parent == sequences_.end()) {
      return Internal("fork of unknown sequence ", fork.parent);
    }
    std::vector<TokenId> history = parent->second;
    if (!sequences_.emplace(fork.child, std::move(history)).second) {
      return Internal("fork into known sequence ", fork.child);
    }
  }
  for (const SequenceId sequence : plan.finished) {
    if (sequences_.erase(sequence) == 0) {
      return Internal("unknown sequence ", sequence, " finished");
    }
  }
  return absl::OkStatus();
}

void ToyModel::SwapPages(const StepPlan& plan) {
  const int page_size = options_.page_size;
  for (const PageSave& save : plan.page_saves) {
    std::copy_n(cells_.begin() + save.page.value * page_size, page_size,
                host_cells_.begin() + save.slot.value * page_size);
  }
  for (const PageLoad& load : plan.page_loads) {
    std::copy_n(host_cells_.begin() + load.slot.value * page_size, page_size,
                cells_.begin() + load.page.value * page_size);
  }
}

void ToyModel::CopyPages(const StepPlan& plan) {
  const int page_size = options_.page_size;
  for (const PageCopy& copy : plan.page_copies) {
    const auto to = cells_.begin() + copy.to.value * page_size;
    std::fill_n(to, page_size, kGarbage);
    std::copy_n(cells_.begin() + copy.from.value * page_size, copy.num_tokens,
                to);
  }
}

absl::Status ToyModel::Feed(const StepPlan& plan, size_t row_idx) {
  const PlanRow& row = plan.rows[row_idx];
  const std::span<const TokenId> tokens = plan.row_tokens(row);
  if (options_.memory == ToyModelOptions::Memory::kPages) {
    for (int i = 0; i < row.num_tokens; ++i) {
      cells_[CellIndex(plan.row_pages(row_idx), row.first_position + i)] =
          tokens[i];
    }
    return absl::OkStatus();
  }
  std::vector<TokenId>& history = sequences_[row.sequence];
  if (row.first_position != history.size()) {
    return Internal("sequence ", row.sequence, " has ", history.size(),
                    " tokens and is fed from position ", row.first_position);
  }
  history.insert(history.end(), tokens.begin(), tokens.end());
  return absl::OkStatus();
}

std::vector<TokenId> ToyModel::History(const StepPlan& plan,
                                       size_t row_idx) const {
  const PlanRow& row = plan.rows[row_idx];
  if (options_.memory == ToyModelOptions::Memory::kSequences) {
    return sequences_.at(row.sequence);
  }
  std::vector<TokenId> history;
  for (int i = 0; i < row.first_position + row.num_tokens; ++i) {
    history.push_back(cells_[CellIndex(plan.row_pages(row_idx), i)]);
  }
  return history;
}

int ToyModel::CellIndex(std::span<const PageId> pages, int position) const {
  const int page_size = options_.page_size;
  return pages[position / page_size].value * page_size + position % page_size;
}

}  // namespace espalier::testing
