#include "openai/score_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/byte_order_mark.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "openai/logprobs.h"
#include "openai/object_fields.h"

namespace espalier::openai {
namespace {

// Checks the number of tokens to score, before any of them is made.
absl::Status CheckSize(const ScoreCall& call, const Limits& limits) {
  const int64_t num_items = std::ssize(call.items);
  if (call.scores_labels()) {
    if (num_items > limits.max_prompts) {
      return InvalidField("`items` must be at most ", Limit(limits.max_prompts),
                          " prompts with label_token_ids (--max-prompts)",
                          Got(num_items));
    }
    const int64_t num_labels = std::ssize(call.label_token_ids);
    if (num_items * num_labels <= kMaxTokensOfScoreCall) {
      return absl::OkStatus();
    }
    return InvalidField("`label_token_ids` must be at most ",
                        Limit(kMaxTokensOfScoreCall), " of all items together",
                        Got(num_labels, " of ", num_items, " items"));
  }
  int64_t num_tokens = 0;
  for (const TextOrTokens& item : call.items) {
    const auto* const tokens = std::get_if<std::vector<TokenId>>(&item);
    num_tokens += tokens != nullptr ? std::ssize(*tokens) : 1;
  }
  if (num_tokens <= kMaxTokensOfScoreCall) return absl::OkStatus();
  return InvalidField("`items` must have at most ",
                      Limit(kMaxTokensOfScoreCall), " tokens together",
                      Got(num_tokens));
}

absl::Status CheckOptions(const ScoreCall& call) {
  if (call.scores_labels()) {
    if (!call.append_eos) return absl::OkStatus();
    return InvalidField(
        "`append_eos` must be false with label_token_ids, which are scored by "
        "themselves",
        Got("true"));
  }
  if (!call.item_first) return absl::OkStatus();
  return InvalidField(
      "`item_first` must be false without label_token_ids, where items follow "
      "the query",
      Got("true"));
}

int64_t NumTextBytes(const TextOrTokens& input) {
  const auto* const text = std::get_if<std::string>(&input);
  return text == nullptr ? 0 : std::ssize(*text);
}

// As AppendLogProbs writes those of no chance.
void AppendNats(double nats, std::string* out) {
  AppendJson(std::isinf(nats) ? -9999.0 : nats, out);
}

void AppendNats(std::span<const float> nats, std::string* out) {
  AppendList(
      nats,
      [&](float value) {
        AppendJson(std::isinf(value) ? -9999.0f : value, out);
      },
      out);
}

void AppendRanks(std::span<const int> ranks, std::string* out) {
  AppendList(
      ranks, [&](int rank) { AppendJson(int64_t{rank}, out); }, out);
}

// The logarithm of the sum of all probabilities.
double LogSum(std::span<const ContinuationScore> scores) {
  double max = -std::numeric_limits<double>::infinity();
  for (const ContinuationScore& score : scores) {
    max = std::max(max, score.cum_log_prob);
  }
  if (std::isinf(max)) return max;
  double sum = 0;
  for (const ContinuationScore& score : scores) {
    sum += std::exp(score.cum_log_prob - max);
  }
  return max + std::log(sum);
}

// A probability, or a share of what has `log_sum` together.
void AppendShare(double log_prob, double log_sum, std::string* out) {
  AppendField(R"(,"object":"score","score":)",
              std::isinf(log_prob) ? 0.0 : std::exp(log_prob - log_sum), out);
}

// The first label's score, and all labels.
void AppendLabels(std::span<const ContinuationScore> labels, double log_sum,
                  std::string* out) {
  AppendShare(labels[0].cum_log_prob, log_sum, out);
  std::vector<float> log_probs;
  std::vector<int> ranks;
  for (const ContinuationScore& label : labels) {
    log_probs.push_back(label.log_probs[0]);
    ranks.push_back(label.ranks[0]);
  }
  *out += R"(,"label_logprobs":)";
  AppendNats(log_probs, out);
  *out += R"(,"label_ranks":)";
  AppendRanks(ranks, out);
}

void AppendItem(const ContinuationScore& score, double log_sum,
                std::string* out) {
  AppendShare(score.cum_log_prob, log_sum, out);
  *out += R"(,"logprob":)";
  AppendNats(score.cum_log_prob, out);
  *out += score.is_greedy ? R"(,"is_greedy":true)" : R"(,"is_greedy":false)";
  *out += R"(,"token_ids":)";
  AppendIds(score.tokens, out);
  *out += R"(,"token_logprobs":)";
  AppendNats(score.log_probs, out);
  *out += R"(,"ranks":)";
  AppendRanks(score.ranks, out);
}

}  // namespace

int64_t ScoreCall::num_text_bytes() const {
  int64_t num_bytes = 0;
  for (const TextOrTokens& item : items) num_bytes += NumTextBytes(item);
  const int64_t num_queries = scores_labels() ? 1 : 1 + std::ssize(items);
  return num_bytes + num_queries * NumTextBytes(query);
}

absl::StatusOr<ScoreCall> ReadScoreCall(std::string_view body,
                                        const Limits& limits) {
  ObjectFields fields(kInScoring);
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    fields.Add(key, value);
  };
  ASSIGN_OR_RETURN(const JsonText json,
                   ScanJson(WithoutByteOrderMark(body), 1, take));
  if (!json.is_object()) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Shown(json.text));
  }
  CallDraft draft;
  for (const auto& [field, name, value] : fields.Take()) {
    RETURN_IF_ERROR(ReadCallField(field, name, value, limits, &draft));
  }
  RETURN_IF_ERROR(WarnOfUnknown(fields, &draft));
  if (draft.call.prompts.empty()) {
    return MissingField(MessageParts("`query` must be there", Got("nothing")),
                        draft);
  }
  if (draft.score.items.empty()) {
    return MissingField(MessageParts("`items` must be there", Got("nothing")),
                        draft);
  }
  ScoreCall call = std::move(draft.score);
  call.model = std::move(draft.call.model);
  call.query = std::move(draft.call.prompts[0]);
  call.add_special_tokens = draft.call.add_special_tokens.value_or(true);
  call.params = std::move(draft.call.params);
  call.request_id = std::move(draft.call.request_id);
  call.warnings = std::move(draft.call.warnings);
  RETURN_IF_ERROR(CheckOptions(call));
  RETURN_IF_ERROR(CheckSize(call, limits));
  return call;
}

std::string WriteScores(const ScoreCall& call, const AnswerHead& head,
                        std::span<const ContinuationScore> scores,
                        const ScoreCounts& counts) {
  std::string json;
  AppendField(R"({"id":)", std::string_view(head.id), &json);
  AppendField(R"(,"object":"list","created":)", head.created, &json);
  AppendField(R"(,"model":)", std::string_view(head.model), &json);
  json += R"(,"data":[)";
  const size_t num_labels = call.label_token_ids.size();
  const double of_items = call.apply_softmax ? LogSum(scores) : 0;
  for (size_t i = 0; i < call.items.size(); ++i) {
    if (i > 0) json += ',';
    AppendField(R"({"index":)", static_cast<int64_t>(i), &json);
    if (call.scores_labels()) {
      const auto labels = scores.subspan(i * num_labels, num_labels);
      AppendLabels(labels, call.apply_softmax ? LogSum(labels) : 0, &json);
    } else {
      AppendItem(scores[i], of_items, &json);
    }
    json += '}';
  }
  json += R"(],"usage":)";
  AppendUsage({.prompt = counts.read, .cached = counts.cached}, &json);
  AppendWarnings(call.warnings, &json);
  json += '}';
  return json;
}

}  // namespace espalier::openai
