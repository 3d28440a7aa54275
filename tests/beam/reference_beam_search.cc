#include "tests/beam/reference_beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace espalier::testing {
namespace {

constexpr float kNone = -1.0e9f;
// Below it a score is that of a copy: no sum of a few log-probabilities is.
constexpr float kCopy = -1.0e8f;

using Tokens = std::vector<TokenId>;

// torch.topk, ties to the lower index.
std::vector<size_t> TopK(const std::vector<float>& values, size_t k) {
  std::vector<size_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::stable_sort(indices.begin(), indices.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  indices.resize(std::min(k, indices.size()));
  return indices;
}

float OverLength(float score, int64_t length, const GenerationParams& params) {
  double base = static_cast<double>(length);
  if (params.length_penalty_form == LengthPenaltyForm::kWu) {
    base = (5 + base) / 6;
  }
  return score / static_cast<float>(std::pow(base, params.length_penalty));
}

class Search {
 public:
  Search(const LanguageModel& model, const GenerationParams& params)
      : model_(model),
        params_(params),
        k_(params.num_beams),
        running_(k_),
        running_scores_(k_, kNone),
        finished_(k_),
        finished_scores_(k_, kNone),
        finished_sums_(k_, 0),
        is_finished_(k_, false) {
    running_scores_[0] = 0;
  }

  ReferenceResult Run() {
    bool goes_on = true;
    while (goes_on) goes_on = Step();
    for (int64_t i = 0; i < params_.num_return_sequences; ++i) {
      if (!is_finished_[i]) continue;
      result_.hypotheses.push_back(
          {finished_[i], finished_scores_[i], finished_sums_[i],
           EndsInEos(finished_[i]) ? FinishReason::kEos
                                   : FinishReason::kLength});
    }
    result_.num_steps = length_;
    return result_;
  }

 private:
  bool EndsInEos(const Tokens& tokens) const {
    const std::vector<int64_t>& eos = *params_.eos_token_id;
    return std::find(eos.begin(), eos.end(), tokens.back()) != eos.end();
  }

  bool AllFinished() const {
    return std::all_of(is_finished_.begin(), is_finished_.end(),
                       [](bool finished) { return finished; });
  }

  // Rules 2 and 3: the candidates, and which of them hit.
  void MakeCandidates() {
    std::vector<float> sums;  // [k * vocab_size]
    for (size_t beam = 0; beam < k_; ++beam) {
      for (const float log_prob : model_(running_[beam])) {
        sums.push_back(log_prob + running_scores_[beam]);
      }
    }
    const size_t vocab_size = sums.size() / k_;
    const size_t num_eos = params_.eos_token_id->size();
    candidates_.clear();
    candidate_sums_.clear();
    hits_.clear();
    for (const size_t i : TopK(sums, std::max<size_t>(2, 1 + num_eos) * k_)) {
      candidates_.push_back(running_[i / vocab_size]);
      candidates_.back().push_back(i % vocab_size);
      candidate_sums_.push_back(sums[i]);
      hits_.push_back(EndsInEos(candidates_.back()) ||
                      candidates_.back().size() == *params_.max_new_tokens);
    }
  }

  // Rule 4.
  void TakeRunning() {
    std::vector<float> scores = candidate_sums_;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (hits_[i]) scores[i] += kNone;
    }
    size_t beam = 0;
    for (const size_t i : TopK(scores, k_)) {
      running_[beam] = candidates_[i];
      running_scores_[beam++] = scores[i];
    }
  }

  // Rule 5.
  void TakeFinished() {
    const bool closed =
        params_.early_stopping == EarlyStopping::kTrue && AllFinished();
    std::vector<Tokens> tokens = finished_;
    std::vector<float> scores = finished_scores_;
    std::vector<float> sums = finished_sums_;
    std::vector<bool> done = is_finished_;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const bool enters = i < k_ && hits_[i];
      if (enters && candidate_sums_[i] < kCopy) result_.copies_finished = true;
      float score = OverLength(candidate_sums_[i], length_, params_);
      if (closed) score += kNone;
      if (!can_improve_) score += kNone;
      if (!enters) score += kNone;
      tokens.push_back(candidates_[i]);
      scores.push_back(score);
      sums.push_back(candidate_sums_[i]);
      done.push_back(enters);
    }
    size_t slot = 0;
    for (const size_t i : TopK(scores, k_)) {
      finished_[slot] = tokens[i];
      finished_scores_[slot] = scores[i];
      finished_sums_[slot] = sums[i];
      is_finished_[slot++] = done[i];
    }
  }

  // Rule 6.
  void UpdateCanImprove() {
    const bool full_length = params_.early_stopping == EarlyStopping::kNever &&
                             params_.length_penalty > 0;
    const float best =
        OverLength(running_scores_[0],
                   full_length ? *params_.max_new_tokens : length_, params_);
    const float min =
        *std::min_element(finished_scores_.begin(), finished_scores_.end());
    bool some = false;
    for (size_t i = 0; i < k_; ++i) {
      some = some || best > (is_finished_[i] ? min : kNone);
    }
    can_improve_ = can_improve_ && some;
  }

  bool Step() {
    ++length_;
    MakeCandidates();
    TakeRunning();
    TakeFinished();
    UpdateCanImprove();
    const bool all_hit =
        std::all_of(hits_.begin(), hits_.end(), [](bool hit) { return hit; });
    const bool closed =
        params_.early_stopping == EarlyStopping::kTrue && AllFinished();
    return can_improve_ && !closed && !all_hit;  // rule 7
  }

  const LanguageModel& model_;
  const GenerationParams& params_;
  const size_t k_;
  std::vector<Tokens> running_;         // [k]
  std::vector<float> running_scores_;   // [k]
  std::vector<Tokens> finished_;        // [k]
  std::vector<float> finished_scores_;  // [k]
  std::vector<float> finished_sums_;    // [k]
  std::vector<bool> is_finished_;       // [k]
  std::vector<Tokens> candidates_;      // [max(2, 1 + num_eos) * k]
  std::vector<float> candidate_sums_;
  std::vector<bool> hits_;
  int length_ = 0;
  bool can_improve_ = true;
  ReferenceResult result_;
};

}  // namespace

ReferenceResult ReferenceBeamSearch(const LanguageModel& model,
                                    const GenerationParams& params) {
  return Search(model, params).Run();
}

}  // namespace espalier::testing
