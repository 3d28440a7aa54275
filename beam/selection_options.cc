#include "beam/selection_options.h"

#include <algorithm>

namespace espalier {
namespace {

std::vector<TokenId> ToTokens(const std::vector<int64_t>& ids) {
  return std::vector<TokenId>(ids.begin(), ids.end());
}

bool ChangesScores(const ScoreProcessors& processors) {
  return processors.needs_history() || !processors.suppress_tokens.empty() ||
         (processors.min_new_tokens > 0 && !processors.eos_token_ids.empty());
}

}  // namespace

std::vector<TokenId> DistinctEosTokenIds(const GenerationParams& params) {
  if (!params.eos_token_id.has_value()) return {};
  std::vector<TokenId> ids = ToTokens(*params.eos_token_id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::shared_ptr<const ScoreProcessors> MakeScoreProcessors(
    const GenerationParams& params) {
  auto processors = std::make_shared<ScoreProcessors>();
  processors->repetition_penalty =
      static_cast<float>(params.repetition_penalty);
  processors->no_repeat_ngram_size = SaturateToInt(params.no_repeat_ngram_size);
  for (const std::vector<int64_t>& words : params.bad_words_ids) {
    processors->bad_words.push_back(ToTokens(words));
  }
  processors->suppress_tokens = ToTokens(params.suppress_tokens);
  processors->eos_token_ids = DistinctEosTokenIds(params);
  processors->min_new_tokens = SaturateToInt(params.min_new_tokens);
  if (!ChangesScores(*processors)) return nullptr;
  return processors;
}

}  // namespace espalier
