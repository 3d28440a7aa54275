#include "beam/strategy/selection_options.h"

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

// Returns the list that `make` derives from another, one for all copies of it.
template <typename To, typename From, typename Make>
SharedList<To> MakeOnce(const SharedList<From>& from, const Make& make) {
  if (from.empty()) return {};
  return *from.template Derived<SharedList<To>>(
      {}, [&] { return SharedList<To>(make(from.items())); });
}

std::vector<TokenId> ToTokenIds(const std::vector<int64_t>& ids) {
  return std::vector<TokenId>(ids.begin(), ids.end());
}

SharedList<TokenId> ToTokens(const SharedList<int64_t>& ids) {
  return MakeOnce<TokenId>(ids, ToTokenIds);
}

SharedList<TokenBias> ToBiases(
    const SharedList<std::pair<int64_t, double>>& biases) {
  return MakeOnce<TokenBias>(biases, [](const auto& items) {
    std::vector<TokenBias> made;
    for (const auto& [token, bias] : items) {
      made.push_back({static_cast<TokenId>(token), static_cast<float>(bias)});
    }
    return made;
  });
}

SharedList<SequenceTokenBias> ToSequenceBiases(
    const SharedList<SequenceBias>& biases) {
  return MakeOnce<SequenceTokenBias>(biases, [](const auto& items) {
    std::vector<SequenceTokenBias> made;
    for (const auto& [tokens, bias] : items) {
      made.push_back({ToTokenIds(tokens), static_cast<float>(bias)});
    }
    return made;
  });
}

SharedList<std::vector<TokenId>> ToWords(
    const SharedList<std::vector<int64_t>>& words) {
  return MakeOnce<std::vector<TokenId>>(words, [](const auto& items) {
    std::vector<std::vector<TokenId>> made;
    for (const auto& ids : items) made.push_back(ToTokenIds(ids));
    return made;
  });
}

std::vector<TokenId> Distinct(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

struct DistinctTokens {
  SharedList<TokenId> list;
};

SharedList<TokenId> DistinctOf(const SharedList<int64_t>& ids) {
  if (ids.empty()) return {};
  return ids
      .Derived<DistinctTokens>(
          {}, [&] { return DistinctTokens{Distinct(ToTokenIds(ids))}; })
      ->list;
}

struct FinishingTokens {
  SharedList<TokenId> list;
};

TimestampRule ToRule(const TimestampParams& params) {
  constexpr int64_t kAny = std::numeric_limits<TokenId>::max();
  const int64_t max_step = params.max_initial_step.value_or(kAny);
  return {.first_time = static_cast<TokenId>(params.first_time),
          .end = static_cast<TokenId>(params.end),
          .no_timestamps = static_cast<TokenId>(params.no_timestamps),
          .last_first_time = static_cast<TokenId>(
              std::min(kAny, params.first_time + std::min(kAny, max_step))),
          .after_prefix = params.after_prefix ? 1 : 0};
}

ScoreProcessors MakeProcessors(const GenerationParams& params) {
  ScoreProcessors processors;
  processors.logit_bias = ToBiases(params.logit_bias);
  processors.sequence_bias = ToSequenceBiases(params.sequence_bias);
  processors.repetition_penalty = static_cast<float>(params.repetition_penalty);
  processors.frequency_penalty = static_cast<float>(params.frequency_penalty);
  processors.presence_penalty = static_cast<float>(params.presence_penalty);
  processors.no_repeat_ngram_size = SaturateToInt(params.no_repeat_ngram_size);
  processors.bad_words = ToWords(params.bad_words_ids);
  processors.suppress_tokens = ToTokens(params.suppress_tokens);
  processors.begin_suppress_tokens = ToTokens(params.begin_suppress_tokens);
  processors.begin_index = params.forced_bos_token_id ? 1 : 0;
  if (params.forced_bos_token_id) {
    processors.forced_first_tokens = {
        static_cast<TokenId>(*params.forced_bos_token_id)};
  }
  processors.forced_last_tokens = ToTokens(params.forced_eos_token_id);
  processors.max_new_tokens = SaturateToInt(params.max_new_tokens.value_or(0));
  processors.eos_token_ids = FinishingTokenIds(params);
  processors.min_new_tokens = SaturateToInt(params.min_new_tokens);
  if (params.allowed_token_ids.has_value()) {
    processors.allowed_tokens = DistinctOf(*params.allowed_token_ids);
  }
  if (params.exponential_decay_length_penalty) {
    const LengthDecay& decay = *params.exponential_decay_length_penalty;
    processors.eos_decay = {.tokens = DistinctEosTokenIds(params),
                            .start_index = SaturateToInt(decay.start_index),
                            .factor = decay.factor};
  }
  processors.renormalizes = params.renormalize_logits || params.timestamps;
  if (params.timestamps) processors.timestamps = ToRule(*params.timestamps);
  return processors;
}

bool Draws(const GenerationParams& params) {
  return params.do_sample || params.stochastic;
}

SamplingParams MakeSampling(const GenerationParams& params) {
  if (!Draws(params)) return {.temperature = 0.0f};
  // The sum makes 0 of -0, because SamplingParams are compared as bytes.
  return {.temperature = static_cast<float>(params.temperature) + 0.0f,
          .min_p = static_cast<float>(params.min_p) + 0.0f,
          .top_k = SaturateToInt(params.top_k),
          .top_p = static_cast<float>(params.top_p),
          .typical_p = static_cast<float>(params.typical_p),
          .seed = params.seed.value_or(0)};
}

}  // namespace

// The strategy itself chooses beams that do not follow from the best candidates
// alone.
SelectionKind KindOf(const GenerationParams& params) {
  if (!IsBeamSearch(params)) return SelectionKind::kDraws;
  if (Draws(params) || params.num_beam_groups > 1) return SelectionKind::kRows;
  return SelectionKind::kBeams;
}

int NumSlots(const GenerationParams& params) {
  return params.max_new_tokens == 1 ? 1 : NumSequences(params);
}

SharedList<TokenId> DistinctEosTokenIds(const GenerationParams& params) {
  if (!params.eos_token_id.has_value() || params.ignore_eos) return {};
  return DistinctOf(*params.eos_token_id);
}

SharedList<TokenId> FinishingTokenIds(const GenerationParams& params) {
  const SharedList<TokenId> eos = DistinctEosTokenIds(params);
  const SharedList<int64_t>& stops = params.stop_token_ids;
  if (stops.empty()) return eos;
  // Requests have separate lists of the model's own ids.
  const DerivedValues::Key key(eos.begin(), eos.end());
  return stops
      .Derived<FinishingTokens>(
          key,
          [&] {
            std::vector<TokenId> ids = eos;
            ids.insert(ids.end(), stops.begin(), stops.end());
            return FinishingTokens{Distinct(std::move(ids))};
          })
      ->list;
}

std::shared_ptr<const SelectionParams> MakeSelectionParams(
    const GenerationParams& params, std::span<const TokenId> prompt,
    std::shared_ptr<const Constraint> constraint, bool has_token_masks) {
  SelectionParams selection;
  const bool by_logits = params.stochastic || !IsBeamSearch(params);
  selection.domain = by_logits ? ScoreDomain::kLogits : ScoreDomain::kLogProbs;
  // Here they may be made, which takes a while; a search has them as well.
  std::optional<ConstraintTables> tables =
      constraint != nullptr ? constraint->tables() : std::nullopt;
  if (tables.has_value() && has_token_masks) {
    selection.constraint = std::move(tables);
    selection.trie_owner = constraint->trie_owner();
  }
  selection.allowed_owner = std::move(constraint);
  selection.processors = MakeProcessors(params);
  selection.edits =
      std::make_shared<const ScoreEdits>(selection.processors, prompt);
  selection.sampling = MakeSampling(params);
  selection.num_logprobs = SaturateToInt(params.logprobs.value_or(-1));
  selection.reports_processed =
      params.logprobs_mode == LogprobsMode::kProcessed;
  selection.reports_legal_mass = params.legal_log_mass;
  if (params.speculate.has_value() &&
      params.speculate->mode == SpeculationMode::kCoupled) {
    selection.verify_mode = VerifyMode::kCoupled;
  }
  return std::make_shared<const SelectionParams>(std::move(selection));
}

}  // namespace espalier
