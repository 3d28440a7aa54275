#include "beam/strategy/selection_options.h"

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

std::vector<TokenId> ToTokens(const std::vector<int64_t>& ids) {
  return std::vector<TokenId>(ids.begin(), ids.end());
}

std::vector<TokenId> Distinct(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

ScoreProcessors MakeProcessors(const GenerationParams& params) {
  ScoreProcessors processors;
  for (const auto& [token, bias] : params.logit_bias) {
    processors.logit_bias.push_back(
        {static_cast<TokenId>(token), static_cast<float>(bias)});
  }
  for (const auto& [tokens, bias] : params.sequence_bias) {
    processors.sequence_bias.push_back(
        {ToTokens(tokens), static_cast<float>(bias)});
  }
  processors.repetition_penalty = static_cast<float>(params.repetition_penalty);
  processors.frequency_penalty = static_cast<float>(params.frequency_penalty);
  processors.presence_penalty = static_cast<float>(params.presence_penalty);
  processors.no_repeat_ngram_size = SaturateToInt(params.no_repeat_ngram_size);
  for (const std::vector<int64_t>& words : params.bad_words_ids) {
    processors.bad_words.push_back(ToTokens(words));
  }
  processors.suppress_tokens = ToTokens(params.suppress_tokens);
  processors.begin_suppress_tokens = ToTokens(params.begin_suppress_tokens);
  processors.begin_index = params.forced_bos_token_id ? 1 : 0;
  if (params.forced_bos_token_id) {
    processors.forced_first_tokens = ToTokens({*params.forced_bos_token_id});
  }
  processors.forced_last_tokens = ToTokens(params.forced_eos_token_id);
  processors.max_new_tokens = SaturateToInt(params.max_new_tokens.value_or(0));
  processors.eos_token_ids = FinishingTokenIds(params);
  processors.min_new_tokens = SaturateToInt(params.min_new_tokens);
  if (params.allowed_token_ids.has_value()) {
    processors.allowed_tokens = Distinct(ToTokens(*params.allowed_token_ids));
  }
  if (params.exponential_decay_length_penalty) {
    const LengthDecay& decay = *params.exponential_decay_length_penalty;
    processors.eos_decay = {.tokens = DistinctEosTokenIds(params),
                            .start_index = SaturateToInt(decay.start_index),
                            .factor = decay.factor};
  }
  processors.renormalizes = params.renormalize_logits;
  return processors;
}

bool Draws(const GenerationParams& params) {
  return params.do_sample || params.stochastic;
}

// Beams that do not follow from their best candidates alone are their
// strategy's to decide.
SelectionKind KindOf(const GenerationParams& params) {
  if (!IsBeamSearch(params)) return SelectionKind::kDraws;
  if (Draws(params) || params.num_beam_groups > 1) return SelectionKind::kRows;
  return SelectionKind::kBeams;
}

SamplingParams MakeSampling(const GenerationParams& params) {
  if (!Draws(params)) return {.temperature = 0.0f};
  return {.temperature = static_cast<float>(params.temperature),
          .min_p = static_cast<float>(params.min_p),
          .top_k = SaturateToInt(params.top_k),
          .top_p = static_cast<float>(params.top_p),
          .typical_p = static_cast<float>(params.typical_p),
          .seed = params.seed.value_or(0)};
}

}  // namespace

int NumSequences(const GenerationParams& params) {
  if (IsBeamSearch(params)) return SaturateToInt(params.num_beams);
  return SaturateToInt(params.best_of.value_or(params.num_return_sequences));
}

int NumSlots(const GenerationParams& params) {
  return params.max_new_tokens == 1 ? 1 : NumSequences(params);
}

std::vector<TokenId> DistinctEosTokenIds(const GenerationParams& params) {
  if (!params.eos_token_id.has_value() || params.ignore_eos) return {};
  return Distinct(ToTokens(*params.eos_token_id));
}

std::vector<TokenId> FinishingTokenIds(const GenerationParams& params) {
  std::vector<TokenId> ids = DistinctEosTokenIds(params);
  ids.insert(ids.end(), params.stop_token_ids.begin(),
             params.stop_token_ids.end());
  return Distinct(std::move(ids));
}

std::shared_ptr<const SelectionParams> MakeSelectionParams(
    const GenerationParams& params, std::span<const TokenId> prompt,
    std::shared_ptr<const void> allowed_owner) {
  SelectionParams selection;
  selection.kind = KindOf(params);
  selection.gumbel_top_k = IsBeamSearch(params) && Draws(params);
  const bool by_logits = params.stochastic || !IsBeamSearch(params);
  selection.domain = by_logits ? ScoreDomain::kLogits : ScoreDomain::kLogProbs;
  selection.allowed_owner = std::move(allowed_owner);
  selection.processors = MakeProcessors(params);
  selection.edits =
      std::make_shared<const ScoreEdits>(selection.processors, prompt);
  selection.sampling = MakeSampling(params);
  selection.num_logprobs = SaturateToInt(params.logprobs.value_or(-1));
  selection.reports_processed =
      params.logprobs_mode == LogprobsMode::kProcessed;
  if (params.speculate.has_value() &&
      params.speculate->mode == SpeculationMode::kCoupled) {
    selection.verify_mode = VerifyMode::kCoupled;
  }
  return std::make_shared<const SelectionParams>(std::move(selection));
}

}  // namespace espalier
