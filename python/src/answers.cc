#include "python/src/answers.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "espalier/result.h"
#include "python/src/errors.h"
#include "request/json/request_json.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

using IntList = nb::typed<nb::list, int>;

IntList Tokens(std::span<const TokenId> tokens) {
  nb::list list;
  for (const TokenId token : tokens) list.append(int{token});
  return IntList(std::move(list));
}

// Each a dictionary of the best tokens and the one that was chosen, as vLLM's.
nb::list LogProbs(std::span<const TokenLogProb> logprobs) {
  nb::list list;
  const nb::object make =
      nb::module_::import_("espalier.results").attr("Logprob");
  for (const TokenLogProb& token : logprobs) {
    nb::dict best;
    int rank = 0;
    best[nb::int_(int{token.token})] = make(token.log_prob, token.rank);
    for (const TokenScore& other : token.best) {
      ++rank;
      const nb::int_ key(int{other.token});
      if (!best.contains(key)) best[key] = make(other.log_prob, rank);
    }
    list.append(best);
  }
  return list;
}

std::optional<std::string> NameOf(const std::optional<FinishReason>& reason) {
  if (!reason) return std::nullopt;
  return std::string(espalier::NameOf(*reason));
}

nb::list Outputs(const RequestOutput& output) {
  nb::list list;
  for (int i = 0; i < std::ssize(output.answer->hypotheses); ++i) {
    list.append(CompletionOutput{output.answer, i});
  }
  return list;
}

nb::dict UsageOf(const RequestOutput& output) {
  const Usage& usage = output.answer->usage;
  nb::dict dict;
  dict["prompt_tokens"] = usage.num_prompt_tokens;
  dict["cached_tokens"] = usage.num_cached_tokens;
  dict["generated_tokens"] = usage.num_generated_tokens;
  dict["steps"] = usage.num_steps;
  dict["drafted_tokens"] = usage.num_drafted_tokens;
  dict["accepted_tokens"] = usage.num_accepted_tokens;
  dict["defaults"] = DictOf(usage.defaults);
  return dict;
}

std::string_view TextOf(const CompletionOutput& output) {
  const std::vector<std::string>& texts = output.answer->texts;
  return texts.empty() ? std::string_view() : texts[output.index];
}

nb::object PromptLogProbs(const RequestOutput& output) {
  if (!output.answer->prompt_logprobs) return nb::none();
  const std::vector<TokenLogProb>& known = *output.answer->prompt_logprobs;
  nb::list list;
  const int64_t first =
      output.answer->usage.num_prompt_tokens - std::ssize(known);
  for (int64_t i = 0; i < first; ++i) list.append(nb::none());
  list.extend(LogProbs(known));
  return list;
}

std::span<const TokenId> TokensOf(const StreamPiece& piece) {
  return std::visit(
      [](const auto& event) -> std::span<const TokenId> {
        if constexpr (requires { event.text; }) return event.tokens;
        return {};
      },
      piece.event);
}

std::string_view TextOf(const StreamPiece& piece) {
  return std::visit(
      [](const auto& event) -> std::string_view {
        if constexpr (requires { event.text; }) return event.text;
        return {};
      },
      piece.event);
}

const SampleEvent* SampleOf(const StreamPiece& piece) {
  return std::get_if<SampleEvent>(&piece.event);
}

}  // namespace

nb::str Text(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::dict DictOf(
    const std::vector<std::pair<std::string, std::string>>& fields) {
  nb::dict dict;
  const nb::object loads = nb::module_::import_("json").attr("loads");
  for (const auto& [name, value] : fields) {
    dict[Text(name)] = loads(Text(value));
  }
  return dict;
}

nb::object ObjectOf(nb::object prompt, absl::StatusOr<Generation> answer,
                    const std::vector<GivenParam>& aliases) {
  if (!answer.ok()) return ExceptionOf(InWordsOfLine(aliases, answer.status()));
  return nb::cast(
      RequestOutput{std::move(prompt),
                    std::make_shared<const Generation>(*std::move(answer))});
}

nb::object ObjectOf(StreamEvent event) {
  return nb::cast(StreamPiece{std::move(event)});
}

void BindAnswers(nb::module_& module) {
  nb::class_<CompletionOutput>(
      module, "CompletionOutput",
      "A generated sequence, under vLLM's names and `score`.")
      .def_ro("index", &CompletionOutput::index, "Its rank, from 0.")
      .def_prop_ro(
          "text", [](const CompletionOutput& o) { return Text(TextOf(o)); },
          "Cut at stops; empty where the model has no tokenizer.")
      .def_prop_ro(
          "token_ids",
          [](const CompletionOutput& o) {
            return Tokens(o.hypothesis().tokens);
          },
          "The generated tokens, with that which ended them.")
      .def_prop_ro(
          "score",
          [](const CompletionOutput& o) { return o.hypothesis().score; },
          "What hypotheses are ranked by: of beams cumulative_logprob with the "
          "length penalty, of samples the mean.")
      .def_prop_ro(
          "cumulative_logprob",
          [](const CompletionOutput& o) { return o.hypothesis().cum_log_prob; },
          "Nats, of all tokens.")
      .def_prop_ro(
          "finish_reason",
          [](const CompletionOutput& o) {
            return Text(espalier::NameOf(o.hypothesis().finish_reason));
          },
          "\"eos\", \"stop\", \"length\" or \"deadline\".")
      .def_prop_ro(
          "sample",
          [](const CompletionOutput& o) { return o.hypothesis().sample; },
          "The number of the sample; 0 of beams.")
      .def_prop_ro(
          "logprobs",
          [](const CompletionOutput& o) -> nb::object {
            if (o.hypothesis().logprobs.empty()) return nb::none();
            return LogProbs(o.hypothesis().logprobs);
          },
          "For each token a dictionary of tokens and their Logprob; None "
          "unless `logprobs` asked for them.")
      .def_prop_ro(
          "legal_log_mass",
          [](const CompletionOutput& o) {
            return o.hypothesis().legal_log_mass;
          },
          "Nats that the constraint left to the model; None unless asked for.")
      .def_prop_ro(
          "beam_indices",
          [](const CompletionOutput& o) -> std::optional<IntList> {
            if (o.hypothesis().beam_indices.empty()) return std::nullopt;
            nb::list list;
            for (const int index : o.hypothesis().beam_indices) {
              list.append(index);
            }
            return IntList(std::move(list));
          },
          "For each token the rank, from 0, of the beam that it was appended "
          "to; None unless asked for.")
      .def("__repr__", [](nb::handle self) {
        return nb::str(
                   "CompletionOutput(index={}, text={!r}, score={:.6g}, "
                   "finish_reason={!r})")
            .format(self.attr("index"), self.attr("text"), self.attr("score"),
                    self.attr("finish_reason"));
      });
  nb::class_<RequestOutput>(module, "RequestOutput",
                            "The answer to one prompt, under vLLM's names.")
      .def_ro("prompt", &RequestOutput::prompt, "As it was given.")
      .def_prop_ro("outputs", Outputs, "CompletionOutput, best first.",
                   nb::sig("def outputs(self) -> list[CompletionOutput]"))
      .def_prop_ro("prompt_logprobs", PromptLogProbs,
                   "As `logprobs` of an output, None for tokens without; None "
                   "unless `prompt_logprobs` asked for them.")
      .def_prop_ro("usage", UsageOf,
                   "Counts of tokens and steps, and the model's defaults that "
                   "the request took.")
      .def_prop_ro(
          "seed", [](const RequestOutput& o) { return o.answer->seed; },
          "Of its random draws; None if there were none.")
      .def_prop_ro(
          "deadline_passed",
          [](const RequestOutput& o) { return o.answer->deadline_passed; },
          "True if deadline_ms ended it early.")
      .def_prop_ro(
          "threshold",
          [](const RequestOutput& o) { return o.answer->threshold; },
          "Of stochastic beams (docs/groups.md); else None.")
      .def_prop_ro(
          "weights_version",
          [](const RequestOutput& o) { return o.answer->weights_version; },
          "The weights that its first step had: the version that "
          "update_weights returned; 0 before the first.")
      .def("__repr__", [](nb::handle self) {
        return nb::str("RequestOutput(prompt={!r}, outputs={!r})")
            .format(self.attr("prompt"), self.attr("outputs"));
      });
  nb::class_<ContinuationScore>(module, "ContinuationScore",
                                "The log-probability of a given continuation.")
      .def_prop_ro(
          "token_ids",
          [](const ContinuationScore& s) { return Tokens(s.tokens); },
          "Its tokens.")
      .def_ro("cumulative_logprob", &ContinuationScore::cum_log_prob,
              "Nats, of all tokens.")
      .def_ro("is_greedy", &ContinuationScore::is_greedy,
              "True if greedy search would generate it.")
      .def_ro("logprobs", &ContinuationScore::log_probs, "Nats, of each token.")
      .def_ro("ranks", &ContinuationScore::ranks,
              "1 + the number of likelier tokens, of each token.")
      .def("__repr__", [](nb::handle self) {
        return nb::str(
                   "ContinuationScore(cumulative_logprob={:.6g}, "
                   "is_greedy={}, token_ids={})")
            .format(self.attr("cumulative_logprob"), self.attr("is_greedy"),
                    self.attr("token_ids"));
      });
  nb::class_<StreamPiece>(
      module, "StreamPiece",
      "New tokens of a sample, or of the prefix that all hypotheses of a beam "
      "search have in common; they are never taken back.")
      .def_prop_ro(
          "text", [](const StreamPiece& p) { return Text(TextOf(p)); },
          "Whole characters.")
      .def_prop_ro(
          "token_ids", [](const StreamPiece& p) { return Tokens(TokensOf(p)); },
          "They may be ahead of the text.")
      .def_prop_ro(
          "sample",
          [](const StreamPiece& p) {
            return SampleOf(p) ? SampleOf(p)->sample : 0;
          },
          "The number of the sample; 0 of beams.")
      .def_prop_ro(
          "finish_reason",
          [](const StreamPiece& p) {
            return SampleOf(p) ? NameOf(SampleOf(p)->finish_reason)
                               : std::nullopt;
          },
          "Of a sample that has ended; else None.")
      .def_prop_ro(
          "logprobs",
          [](const StreamPiece& p) -> nb::object {
            if (!SampleOf(p) || SampleOf(p)->logprobs.empty())
              return nb::none();
            return LogProbs(SampleOf(p)->logprobs);
          },
          "As those of a CompletionOutput.");
}

}  // namespace espalier::python
