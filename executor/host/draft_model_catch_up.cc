// The part of DraftModel that feeds missing tokens, for sequences that lack
// more than kUsualTokens.
#include <algorithm>
#include <map>
#include <vector>

#include "base/status.h"
#include "executor/host/draft_model.h"

namespace espalier {

// A step has one row per sequence, since rows of a step cannot attend to each
// other.
absl::Status DraftModel::FeedStems(std::span<Drafting* const> all,
                                   std::stop_token stop) {
  const std::map<RequestId, Stem> stems = StemsOf(all);
  size_t num_tokens_for_stems = NumTokensForStems(all);
  StepPlan step;
  for (const auto& [request, stem] : stems) {
    const size_t begin = num_fed(*stem.first);
    if (begin >= stem.num_tokens) continue;
    const size_t count =
        std::min(stem.num_tokens - begin, num_tokens_for_stems);
    if (count == 0) continue;
    if (!AddRow(*stem.first, begin + count, 0, &step)) {
      stem.first->is_done = true;
      continue;
    }
    num_tokens_for_stems -= count;
    num_tokens_left_ -= count;
  }
  if (!step.empty()) {
    step.stop = stop;
    RETURN_IF_ERROR(Forward(step, {}));
  }
  ShareStems(stems, all);
  return absl::OkStatus();
}

std::map<RequestId, DraftModel::Stem> DraftModel::StemsOf(
    std::span<Drafting* const> all) const {
  std::map<RequestId, Stem> stems;
  for (Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    Drafting*& first = stems[drafting->asked->request].first;
    if (first == nullptr || num_fed(*first) < num_fed(*drafting)) {
      first = drafting;
    }
  }
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    Stem& stem = stems[drafting->asked->request];
    if (stem.first == drafting) continue;
    const size_t num_common = LengthOfStem(*stem.first, *drafting);
    if (num_fed(*drafting) >= num_common) continue;
    stem.num_tokens = std::max(stem.num_tokens, num_common);
  }
  return stems;
}

size_t DraftModel::LengthOfStem(const Drafting& first,
                                const Drafting& other) const {
  return std::min(CommonLength(first.text, other.text),
                  std::min(first.text.size(), other.text.size()) - 1);
}

void DraftModel::ShareStems(const std::map<RequestId, Stem>& stems,
                            std::span<Drafting* const> all) {
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const Drafting& first = *stems.at(drafting->asked->request).first;
    if (&first == drafting || first.is_done) continue;
    const size_t count =
        std::min(LengthOfStem(first, *drafting), num_fed(first));
    if (num_fed(*drafting) >= count) continue;
    sequences_.Share(first.key, drafting->key, count);
  }
}

void DraftModel::DeferToNextPlan(Work* work, StepPlan* step) {
  struct Waiting {
    size_t num_lacking = 0;
    Drafting* sample = nullptr;  // or
    Searching* search = nullptr;
  };
  std::vector<Waiting> all;
  for (Drafting& sample : work->samples) {
    if (!sample.is_done) all.push_back({num_lacking(sample), &sample, nullptr});
  }
  for (Searching& search : work->searches) {
    if (search.is_done) continue;
    Waiting& waiting = all.emplace_back(Waiting{.search = &search});
    for (const Drafting& beam : search.beams) {
      waiting.num_lacking += num_lacking(beam);
    }
  }
  std::ranges::stable_sort(all, {}, &Waiting::num_lacking);
  for (const Waiting& waiting : all) {
    if (waiting.num_lacking <= num_tokens_left_) {
      num_tokens_left_ -= waiting.num_lacking;
    } else if (waiting.sample != nullptr) {
      waiting.sample->draft.is_behind = AddChunk(*waiting.sample, step);
      waiting.sample->is_done = true;
    } else {
      DeferSearch(waiting.search, step);
    }
  }
}

void DraftModel::DeferSearch(Searching* search, StepPlan* step) {
  search->is_behind = true;
  for (const Drafting& beam : search->beams) {
    search->is_behind = AddChunk(beam, step) && search->is_behind;
  }
  search->is_done = true;
}

size_t DraftModel::NumTokensForStems(std::span<Drafting* const> all) const {
  size_t num_usual = 0;
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const size_t num_tokens = num_lacking(*drafting);
    if (num_tokens <= kUsualTokens) num_usual += num_tokens;
  }
  // Stems always get a share, so that they make progress.
  return num_tokens_left_ - std::min(num_usual, num_tokens_left_ / 4 * 3);
}

bool DraftModel::AddChunk(const Drafting& drafting, StepPlan* step) {
  const size_t count = std::min(num_lacking(drafting), num_tokens_left_);
  if (count == 0) return true;
  if (!AddRow(drafting, num_fed(drafting) + count, 0, step)) return false;
  num_tokens_left_ -= count;
  return true;
}

}  // namespace espalier
