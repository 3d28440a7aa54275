#include "espalier/split_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "text/sentences.h"

namespace espalier {
namespace {

// A field that is of one output, or of one prompt; empty if there is none.
std::string_view FieldOfOne(const SplitChoice& choice,
                            const GenerationParams& params) {
  if (!choice.has_template) return "add_special_tokens false";
  if (choice.parse_special) return "parse_special";
  if (params.prompt_logprobs) return "prompt_logprobs";
  if (params.logprobs) return "logprobs";
  if (params.beam_indices) return "beam_indices";
  if (!params.decoder_prompt.empty()) return "decoder_prompt";
  if (!params.decoder_prompt_tokens.empty()) return "decoder_prompt_tokens";
  if (params.constraint) return "constraint";
  if (params.allowed_sequences) return "allowed_sequences";
  if (params.stochastic) return "stochastic";
  return "";
}

bool JoinsBySample(const GenerationParams& params) {
  const int64_t n = params.num_return_sequences;
  return !IsBeamSearch(params) && params.best_of.value_or(n) <= n;
}

// ">>fra<<" and white space behind it, if `text` begins so.
std::string_view LanguageOf(std::string_view text) {
  constexpr size_t kMostBytes = 16;
  const std::string_view begin = text.substr(0, kMostBytes);
  const size_t end = begin.find("<<");
  if (!text.starts_with(">>") || end == begin.npos) return "";
  const std::string_view name = begin.substr(2, end - 2);
  const bool is_name = std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  if (name.empty() || !is_name) return "";
  const size_t text_begin = text.find_first_not_of(' ', end + 2);
  return text.substr(0, text_begin);
}

std::string SeparatorOf(std::string_view between) {
  constexpr std::string_view kLineBreaks[] = {"\n", "\r", "\u0085", "\u2028",
                                              "\u2029"};
  const bool has_break =
      std::ranges::any_of(kLineBreaks, [&](std::string_view line_break) {
        return between.find(line_break) != between.npos;
      });
  return has_break ? std::string(between) : " ";
}

// The hypothesis of `answer` that is in the `i`-th of the whole.
size_t PartOf(const Generation& answer, size_t i, bool is_by_sample) {
  const std::vector<Hypothesis>& all = answer.hypotheses;
  if (!is_by_sample) return std::min(i, all.size() - 1);
  const auto found =
      std::ranges::find(all, static_cast<int>(i), &Hypothesis::sample);
  return found == all.end() ? 0 : found - all.begin();
}

void AddUsage(const Usage& added, Usage* sum) {
  sum->num_prompt_tokens += added.num_prompt_tokens;
  sum->num_cached_tokens += added.num_cached_tokens;
  sum->num_generated_tokens += added.num_generated_tokens;
  sum->num_steps += added.num_steps;
  sum->num_drafted_tokens += added.num_drafted_tokens;
  sum->num_accepted_tokens += added.num_accepted_tokens;
}

void Append(const Hypothesis& added, Hypothesis* whole) {
  whole->tokens.insert(whole->tokens.end(), added.tokens.begin(),
                       added.tokens.end());
  whole->score += added.score;
  whole->cum_log_prob += added.cum_log_prob;
  whole->finish_reason = std::max(whole->finish_reason, added.finish_reason);
}

// Samples best first.
void SortByScore(Generation* whole) {
  std::vector<size_t> order(whole->hypotheses.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return whole->hypotheses[a].score > whole->hypotheses[b].score;
  });
  std::vector<Hypothesis> hypotheses;
  std::vector<std::string> texts;
  for (const size_t i : order) {
    hypotheses.push_back(std::move(whole->hypotheses[i]));
    texts.push_back(std::move(whole->texts[i]));
  }
  whole->hypotheses = std::move(hypotheses);
  whole->texts = std::move(texts);
}

bool IsSplitByDefault(const SplitChoice& choice) {
  const bool may_split = choice.has_encoder || choice.translates_sentences;
  return may_split && choice.otherwise.value_or(choice.translates_sentences);
}

}  // namespace

absl::Status CheckSplitsTexts(const SplitChoice& choice) {
  const bool is_wrong = choice.given.value_or(false) && !choice.has_encoder &&
                        !choice.translates_sentences;
  if (!is_wrong) return absl::OkStatus();
  return InvalidField(
      "`split_sentences` must be false for a model without an encoder whose "
      "prompt template has no languages",
      Got("true"));
}

absl::StatusOr<bool> IsSplit(const SplitChoice& choice,
                             const GenerationParams& params) {
  RETURN_IF_ERROR(CheckSplitsTexts(choice));
  if (!choice.given.value_or(IsSplitByDefault(choice))) return false;
  const std::string_view field = FieldOfOne(choice, params);
  if (field.empty()) return true;
  if (!choice.given) return false;
  return InvalidField("`split_sentences` must be false with ", FieldName{field},
                      Got("true"));
}

std::string_view FieldOfWholeText(const SplitChoice& choice,
                                  const GenerationParams& params,
                                  const std::string& text) {
  if (choice.given || !IsSplitByDefault(choice)) return "";
  const std::string_view field = FieldOfOne(choice, params);
  constexpr size_t kSeveral = 3;  // one may be a mark of a language
  return field.empty() || !SplitIntoSentences(text, kSeveral) ? "" : field;
}

std::string WholeTextWarning(std::string_view field) {
  return Concat("a text of several sentences is translated as one because of ",
                field, ", and may lose some; split it, or leave out ", field);
}

std::optional<SplitText> SplitIntoSentences(const std::string& text,
                                            size_t max_sentences) {
  if (!IsUtf8(text)) return std::nullopt;
  const std::vector<Sentence> sentences = SplitSentences(text, max_sentences);
  if (sentences.size() < 2) return std::nullopt;
  std::string language;
  SplitText split;
  std::string separator;
  for (const Sentence& sentence : sentences) {
    const std::string_view mark = LanguageOf(sentence.text);
    if (!mark.empty()) language = mark;
    if (!mark.empty() && mark.size() == sentence.text.size()) {
      language += ' ';  // a mark on a line of its own is no sentence
      continue;
    }
    split.sentences.push_back(
        Concat(mark.empty() ? language : "", sentence.text));
    split.separators.push_back(std::move(separator));
    separator = SeparatorOf(sentence.after);
  }
  if (split.sentences.size() < 2) return std::nullopt;
  return split;
}

void ShareSeed(const std::vector<Request*>& requests) {
  Request& first = *requests.front();
  if (!DrawsAtRandom(first.params)) return;
  if (!first.params.seed) GiveSeed(&first);
  for (Request* const request : requests) {
    request->params.seed = first.params.seed;
  }
}

absl::Status OfSentence(const absl::Status& error, size_t sentence,
                        size_t num_sentences) {
  const bool is_its_fault = absl::IsInvalidArgument(error) ||
                            absl::IsFailedPrecondition(error) ||
                            absl::IsResourceExhausted(error);
  if (!is_its_fault) return error;
  return AppendParts(error, "; of sentence ", sentence + 1, " of ",
                     num_sentences);
}

SentenceJoiner::SentenceJoiner(std::vector<std::string> separators,
                               const GenerationParams& params)
    : separators_(std::move(separators)),
      is_search_(IsBeamSearch(params)),
      joins_by_sample_(JoinsBySample(params)),
      told_(joins_by_sample_ ? params.num_return_sequences : 1) {}

std::string SentenceJoiner::Separated(size_t sentence, std::string text,
                                      StreamedPart* told) const {
  if (text.empty()) return text;
  told->num_bytes += text.size();
  std::string separated;
  bool has_space = false;
  for (; told->num_separators <= sentence; ++told->num_separators) {
    const std::string& separator = separators_[told->num_separators];
    if (separator == " ") {
      has_space = true;
    } else {
      separated += separator;
    }
  }
  if (has_space && separated.empty() && !told->ends_in_space) separated = " ";
  separated += text;
  told->ends_in_space = absl::ascii_isspace(text.back());
  return separated;
}

std::optional<StreamEvent> SentenceJoiner::Add(size_t sentence,
                                               StreamEvent event) {
  if (auto* sample = std::get_if<SampleEvent>(&event)) {
    return AddSample(sentence, std::move(*sample));
  }
  if (auto* prefix = std::get_if<StablePrefixEvent>(&event)) {
    return AddPrefix(sentence, std::move(*prefix));
  }
  if (auto* beams = std::get_if<BeamsEvent>(&event)) {
    beams->sentence = static_cast<int>(sentence);
    return event;
  }
  CHECK(false) << "results are ends, and not added";
  return std::nullopt;
}

std::optional<StreamEvent> SentenceJoiner::AddSample(size_t sentence,
                                                     SampleEvent event) {
  if (!joins_by_sample_) return std::nullopt;
  StreamedPart& told = told_[event.sample];
  event.text = Separated(sentence, std::move(event.text), &told);
  if (event.finish_reason) {
    told.finish_reason = std::max(told.finish_reason, *event.finish_reason);
    const bool is_last = sentence + 1 == separators_.size();
    event.finish_reason.reset();
    if (is_last) event.finish_reason = told.finish_reason;
  }
  const bool is_empty =
      event.tokens.empty() && event.text.empty() && !event.finish_reason;
  if (is_empty) return std::nullopt;
  return event;
}

std::optional<StreamEvent> SentenceJoiner::AddPrefix(size_t sentence,
                                                     StablePrefixEvent event) {
  StreamedPart& told = told_.front();
  told.num_tokens += event.tokens.size();
  event.text = Separated(sentence, std::move(event.text), &told);
  return event;
}

std::optional<StreamEvent> SentenceJoiner::End(size_t sentence,
                                               const Generation& answer) {
  const bool is_last = sentence + 1 == separators_.size();
  if (!is_search_ || is_last || answer.hypotheses.empty()) {
    return std::nullopt;
  }
  StreamedPart& told = told_.front();
  const std::vector<TokenId>& tokens = answer.hypotheses[0].tokens;
  const std::string& text = answer.texts[0];
  StablePrefixEvent rest;
  rest.tokens.assign(tokens.begin() + std::min(told.num_tokens, tokens.size()),
                     tokens.end());
  rest.text = Separated(
      sentence, text.substr(std::min(told.num_bytes, text.size())), &told);
  told.num_tokens = told.num_bytes = 0;
  if (rest.tokens.empty() && rest.text.empty()) return std::nullopt;
  return rest;
}

Generation SentenceJoiner::Join(std::vector<Generation> answers) const {
  CHECK_EQ(answers.size(), separators_.size());
  Generation whole;
  whole.usage.defaults = answers[0].usage.defaults;
  whole.seed = answers[0].seed;
  whole.weights_version = answers[0].weights_version;
  size_t num_hypotheses = 0;
  for (const Generation& answer : answers) {
    AddUsage(answer.usage, &whole.usage);
    whole.deadline_passed |= answer.deadline_passed;
    whole.weights_version =
        std::min(whole.weights_version, answer.weights_version);
    num_hypotheses = std::max(num_hypotheses, answer.hypotheses.size());
  }
  for (size_t i = 0; i < num_hypotheses; ++i) {
    Hypothesis& hypothesis = whole.hypotheses.emplace_back();
    hypothesis.finish_reason = FinishReason::kEos;
    std::string& text = whole.texts.emplace_back();
    StreamedPart joined;
    for (size_t k = 0; k < answers.size(); ++k) {
      if (answers[k].hypotheses.empty()) continue;
      const size_t part = PartOf(answers[k], i, joins_by_sample_);
      Append(answers[k].hypotheses[part], &hypothesis);
      text += Separated(k, answers[k].texts[part], &joined);
    }
    hypothesis.sample = is_search_ ? 0 : static_cast<int>(i);
  }
  if (joins_by_sample_) SortByScore(&whole);
  return whole;
}

}  // namespace espalier
