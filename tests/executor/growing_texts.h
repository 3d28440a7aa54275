// GrowingTexts: samples with drafts requested step after step: each text grows
// by some of its drafted tokens, and then by another token. Some have
// processors that depend on the text, and some end.
//
//   for (;;) {
//     plan = texts.Plan();  drafts = model.Run(plan);  texts.Grow(drafts);
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier::testing {

class GrowingTexts {
 public:
  // Drafts of up to `max_draft` tokens.
  GrowingTexts(uint32_t seed, int vocab_size, int num_requests = 4,
               int max_draft = 4)
      : random_(seed), vocab_size_(vocab_size), max_draft_(max_draft) {
    for (int request = 0; request < num_requests; ++request) {
      const auto params = AnyParams();
      const auto prompt = std::make_shared<const std::vector<TokenId>>(
          AnyTokens(1 + Below(12)));
      const int num_samples = 1 + Below(3);
      for (int sample = 0; sample < num_samples; ++sample) {
        all_.push_back({.request = RequestId{request},
                        .sample = sample,
                        .prompt = prompt,
                        .generated = AnyTokens(1),
                        .num_tokens = 1 + Below(max_draft_),
                        .params = params});
      }
    }
  }

  // Some of them.
  StepPlan Plan() {
    StepPlan plan;
    plan.max_draft_step_tokens = 12 + Below(40);
    asked_.clear();
    for (size_t i = 0; i < all_.size(); ++i) {
      if (Below(4) == 0) continue;
      all_[i].num_tokens = 1 + Below(max_draft_);
      plan.drafting.push_back(all_[i]);
      asked_.push_back(i);
    }
    return plan;
  }

  void Grow(std::span<const DraftedTokens> drafts) {
    for (size_t i = 0; i < drafts.size(); ++i) {
      std::vector<TokenId>& text = all_[asked_[i]].generated;
      const std::vector<TokenId>& draft = drafts[i].tokens;
      const int num_accepted = Below(static_cast<int>(draft.size()) + 1);
      text.insert(text.end(), draft.begin(), draft.begin() + num_accepted);
      text.push_back(Below(vocab_size_));
    }
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }
  std::vector<TokenId> AnyTokens(int count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = Below(vocab_size_);
    return tokens;
  }
  std::shared_ptr<const SelectionParams> AnyParams() {
    auto params = std::make_shared<SelectionParams>();
    params->verify_mode =
        Below(2) == 0 ? VerifyMode::kRejection : VerifyMode::kCoupled;
    params->sampling.temperature = Below(3) == 0 ? 0.0f : 1.5f;
    params->sampling.seed = random_();
    params->processors.eos_token_ids = {0};
    params->processors.min_new_tokens = Below(12);
    if (Below(3) == 0) params->processors.suppress_tokens = {2, 7};
    if (Below(4) == 0) params->processors.frequency_penalty = 0.5f;
    return params;
  }

  std::mt19937 random_;
  const int vocab_size_;
  const int max_draft_;
  std::vector<DraftSequence> all_;
  std::vector<size_t> asked_;  // indices into all_
};

}  // namespace espalier::testing
