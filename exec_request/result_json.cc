#include "exec_request/result_json.h"

#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

// {"token", "log_prob", "rank", "top": [{"token", "log_prob"}, ...]}.
json::object LogProbObject(const TokenLogProb& logprob) {
  json::array best;
  for (const TokenScore& token : logprob.best) {
    best.push_back(
        {{"token", token.token}, {"log_prob", JsonFloat(token.log_prob)}});
  }
  return {{"token", logprob.token},
          {"log_prob", JsonFloat(logprob.log_prob)},
          {"rank", logprob.rank},
          {"top", std::move(best)}};
}

json::array LogProbList(std::span<const TokenLogProb> logprobs) {
  json::array list;
  for (const TokenLogProb& logprob : logprobs) {
    list.push_back(LogProbObject(logprob));
  }
  return list;
}

json::object HypothesisObject(const Hypothesis& hypothesis,
                              const std::string* text) {
  json::object object;
  object["tokens"] =
      json::array(hypothesis.tokens.begin(), hypothesis.tokens.end());
  if (text != nullptr) object["text"] = *text;
  object["score"] = JsonFloat(hypothesis.score);
  object["cum_log_prob"] = JsonFloat(hypothesis.cum_log_prob);
  object["finish_reason"] = NameOf(hypothesis.finish_reason);
  if (!hypothesis.logprobs.empty()) {
    object["logprobs"] = LogProbList(hypothesis.logprobs);
  }
  return object;
}

json::array HypothesisList(const Result& result,
                           std::span<const std::string> texts) {
  json::array list;
  for (size_t i = 0; i < result.hypotheses.size(); ++i) {
    list.push_back(HypothesisObject(result.hypotheses[i],
                                    texts.empty() ? nullptr : &texts[i]));
  }
  return list;
}

// [prompt tokens]: the first token follows nothing.
json::array PromptLogProbList(std::span<const TokenLogProb> logprobs) {
  json::array list = LogProbList(logprobs);
  list.insert(list.begin(), nullptr);
  return list;
}

}  // namespace

std::string WriteResultLine(const json::value& id, const Result& result,
                            std::span<const std::string> texts) {
  const Usage& usage = result.usage;
  json::object line = {{"id", id},
                       {"hypotheses", HypothesisList(result, texts)},
                       {"usage",
                        {{"prompt_tokens", usage.num_prompt_tokens},
                         {"cached_tokens", usage.num_cached_tokens},
                         {"generated_tokens", usage.num_generated_tokens},
                         {"steps", usage.num_steps}}}};
  if (result.seed) line["seed"] = *result.seed;
  if (result.threshold) line["threshold"] = *result.threshold;
  if (result.prompt_logprobs) {
    line["prompt_logprobs"] = PromptLogProbList(*result.prompt_logprobs);
  }
  return WriteJson(line);
}

std::string WriteErrorLine(const json::value& id, const absl::Status& error) {
  return WriteJson(
      {{"id", id},
       {"error",
        {{"code", CodeName(error.code())}, {"message", Message(error)}}}});
}

}  // namespace espalier
