#include "request/json/result_json.h"

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// A list: what `append` appends for each item, with commas between.
template <typename Items, typename AppendItem>
void AppendList(const Items& items, const AppendItem& append,
                std::string* out) {
  *out += '[';
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) *out += ", ";
    is_first = false;
    append(item);
  }
  *out += ']';
}

template <typename T>
void AppendField(std::string_view begin, const T& value, std::string* out) {
  *out += begin;
  AppendJson(value, out);
}

void AppendScore(const TokenScore& token, std::string* out) {
  AppendField(R"({"token": )", int64_t{token.token}, out);
  AppendField(R"(, "log_prob": )", token.log_prob, out);
  *out += '}';
}

// {"token", "log_prob", "rank", "top": [{"token", "log_prob"}, ...]}, and
// "legal_log_mass" if it has one.
void AppendLogProb(const TokenLogProb& logprob, std::string* out) {
  AppendField(R"({"token": )", int64_t{logprob.token}, out);
  AppendField(R"(, "log_prob": )", logprob.log_prob, out);
  AppendField(R"(, "rank": )", int64_t{logprob.rank}, out);
  *out += R"(, "top": )";
  AppendList(
      logprob.best, [&](const TokenScore& token) { AppendScore(token, out); },
      out);
  if (logprob.legal_log_mass) {
    AppendField(R"(, "legal_log_mass": )", *logprob.legal_log_mass, out);
  }
  *out += '}';
}

void AppendLogProbs(std::span<const TokenLogProb> logprobs, std::string* out) {
  AppendList(
      logprobs,
      [&](const TokenLogProb& logprob) { AppendLogProb(logprob, out); }, out);
}

void AppendHypothesis(const Hypothesis& hypothesis, const std::string* text,
                      std::string* out) {
  *out += R"({"tokens": )";
  AppendList(
      hypothesis.tokens,
      [&](TokenId token) { AppendJson(int64_t{token}, out); }, out);
  if (text != nullptr) {
    AppendField(R"(, "text": )", std::string_view(*text), out);
  }
  AppendField(R"(, "score": )", hypothesis.score, out);
  AppendField(R"(, "cum_log_prob": )", hypothesis.cum_log_prob, out);
  AppendField(R"(, "finish_reason": )", NameOf(hypothesis.finish_reason), out);
  if (!hypothesis.logprobs.empty()) {
    *out += R"(, "logprobs": )";
    AppendLogProbs(hypothesis.logprobs, out);
  }
  if (hypothesis.legal_log_mass) {
    AppendField(R"(, "legal_log_mass": )", *hypothesis.legal_log_mass, out);
  }
  if (!hypothesis.beam_indices.empty()) {
    *out += R"(, "beam_indices": )";
    AppendList(
        hypothesis.beam_indices,
        [&](int index) { AppendJson(int64_t{index}, out); }, out);
  }
  *out += '}';
}

void AppendHypotheses(const Result& result, std::span<const std::string> texts,
                      std::string* out) {
  size_t i = 0;
  AppendList(
      result.hypotheses,
      [&](const Hypothesis& hypothesis) {
        AppendHypothesis(hypothesis, texts.empty() ? nullptr : &texts[i++],
                         out);
      },
      out);
}

void AppendDefaults(std::span<const std::pair<std::string, std::string>> fields,
                    std::string* out) {
  *out += R"(, "defaults": {)";
  bool is_first = true;
  for (const auto& [name, value] : fields) {
    if (!is_first) *out += ", ";
    is_first = false;
    AppendJson(std::string_view(name), out);
    *out += ": " + value;
  }
  *out += '}';
}

void AppendUsage(const Usage& usage, std::string* out) {
  AppendField(R"({"prompt_tokens": )", usage.num_prompt_tokens, out);
  AppendField(R"(, "cached_tokens": )", usage.num_cached_tokens, out);
  AppendField(R"(, "generated_tokens": )", usage.num_generated_tokens, out);
  AppendField(R"(, "steps": )", usage.num_steps, out);
  if (usage.num_drafted_tokens > 0) {
    AppendField(R"(, "drafted_tokens": )", usage.num_drafted_tokens, out);
    AppendField(R"(, "accepted_tokens": )", usage.num_accepted_tokens, out);
  }
  if (!usage.defaults.empty()) AppendDefaults(usage.defaults, out);
  *out += '}';
}

// The first token of a prompt follows nothing, and those before logprobs_start
// have none.
void AppendPromptLogProbs(const Result& result, std::string* out) {
  const std::vector<TokenLogProb>& logprobs = *result.prompt_logprobs;
  const int64_t first = result.usage.num_prompt_tokens - std::ssize(logprobs);
  *out += R"(, "prompt_logprobs": [null)";
  for (int64_t i = 1; i < first; ++i) *out += ", null";
  for (const TokenLogProb& logprob : logprobs) {
    *out += ", ";
    AppendLogProb(logprob, out);
  }
  *out += ']';
}

}  // namespace

std::string WriteResultLine(std::string_view id, const Result& result,
                            std::span<const std::string> texts) {
  std::string line = Concat(R"({"id": )", id, R"(, "hypotheses": )");
  AppendHypotheses(result, texts, &line);
  line += R"(, "usage": )";
  AppendUsage(result.usage, &line);
  if (result.seed) line += Concat(R"(, "seed": )", *result.seed);
  if (result.deadline_passed) line += R"(, "deadline_passed": true)";
  if (result.threshold) {
    AppendField(R"(, "threshold": )", *result.threshold, &line);
  }
  if (result.weights_version > 0) {
    AppendField(R"(, "weights_version": )", result.weights_version, &line);
  }
  if (result.prompt_logprobs) {
    AppendPromptLogProbs(result, &line);
  }
  line += '}';
  return line;
}

std::string WriteErrorLine(std::string_view id, const absl::Status& error) {
  std::string line = Concat(R"({"id": )", id, R"(, "error": {"code": )");
  AppendJson(std::string_view(CodeName(error.code())), &line);
  AppendField(R"(, "message": )", ToStd(error.message()), &line);
  line += "}}";
  return line;
}

}  // namespace espalier
