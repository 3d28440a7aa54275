// Translation sentence by sentence (docs/sentences.md): the decision to split a
// text, and the merging of the sentences' results. Each sentence is a request
// of its own, with the params of the whole:
//
//   answer(text) == Join(answer(sentence) for each sentence)
//
// Thread safety: functions without state; a SentenceJoiner has one caller at a
// time.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "request/stream_event.h"

namespace espalier {

// Everything that decides if a request's text is split.
struct SplitChoice {
  std::optional<bool> given = {};      // the request's split_sentences
  std::optional<bool> otherwise = {};  // the server's or the program's own
  // Generator::translates_sentences of the request's prompt template.
  bool translates_sentences = false;
  bool has_encoder = false;
  bool has_template = true;    // false: the tokens of the text alone
  bool parse_special = false;  // names of special tokens are these
};

// True if a text of several sentences is split. By default models that
// translate sentences split texts, unless the request has a field that applies
// to one output: logprobs, prompt_logprobs, beam_indices, decoder_prompt,
// constraint, allowed_sequences, stochastic. `params` include the defaults of
// the model and the server.
// Errors: kInvalidArgument naming split_sentences, if the request asks for an
// unsupported split.
absl::StatusOr<bool> IsSplit(const SplitChoice& choice,
                             const GenerationParams& params);

// Errors: kInvalidArgument if split_sentences is true and the model does not
// translate.
absl::Status CheckSplitsTexts(const SplitChoice& choice);

struct SplitText {
  std::vector<std::string> sentences;  // at least two
  // White space in front of each in the answer; "" in front of the first.
  std::vector<std::string> separators;
};

// Returns the field, such as "logprobs", that prevents the split of a text
// which the model or the server would split; empty if there is none. The caller
// should be warned: the output may omit sentences.
std::string_view FieldOfWholeText(const SplitChoice& choice,
                                  const GenerationParams& params,
                                  const std::string& text);
// Returns that warning.
std::string WholeTextWarning(std::string_view field);

// Splits `text`. Nullopt if it has fewer than two sentences or is not UTF-8.
// Sentences of a line are joined by a space, lines by the white space between
// them. A language mark that starts a text for Marian, ">>fra<<", is repeated
// for each sentence. Text after `max_sentences` is omitted.
std::optional<SplitText> SplitIntoSentences(
    const std::string& text,
    size_t max_sentences = std::numeric_limits<size_t>::max());

// Gives all requests the seed of the first, which is drawn if unset, so that
// the seed of the answer reproduces it.
void ShareSeed(const std::vector<Request*>& requests);

// Returns the error of a sentence, counted from 0; the message names the
// sentence if it is the cause.
absl::Status OfSentence(const absl::Status& error, size_t sentence,
                        size_t num_sentences);

class SentenceJoiner {
 public:
  // `params` are those of every sentence's request.
  SentenceJoiner(std::vector<std::string> separators,
                 const GenerationParams& params);

  // Converts an event of this sentence into one of the whole text; nullopt if
  // it adds nothing. The sentences of a stream are added in order.
  std::optional<StreamEvent> Add(size_t sentence, StreamEvent event);
  // Returns the rest of a search's best hypothesis, known once this sentence
  // has ended. After the last sentence the answer has it.
  std::optional<StreamEvent> End(size_t sentence, const Generation& answer);

  // Merges the results of all sentences. Hypothesis i consists of the i-th of
  // each sentence, or of its last if it has fewer; samples are joined by
  // number, unless they are the best of more. Scores, sums of log-probabilities
  // and usage are added up; finish_reason is that of a sentence that did not
  // end by itself, if there is one.
  Generation Join(std::vector<Generation> answers) const;

  size_t num_sentences() const { return separators_.size(); }

 private:
  // Streamed part of a sample, or of a search.
  struct StreamedPart {
    size_t num_separators = 1;
    bool ends_in_space = true;  // true while empty
    size_t num_tokens = 0;      // in the sentence
    size_t num_bytes = 0;       // in the sentence's text
    FinishReason finish_reason = FinishReason::kEos;
  };

  // Returns `text` of a sentence with the separators in front that are missing
  // in `told`: no space after white space, and none for sentences without text.
  std::string Separated(size_t sentence, std::string text,
                        StreamedPart* told) const;
  std::optional<StreamEvent> AddSample(size_t sentence, SampleEvent event);
  std::optional<StreamEvent> AddPrefix(size_t sentence,
                                       StablePrefixEvent event);

  std::vector<std::string> separators_;
  bool is_search_;
  bool joins_by_sample_;
  std::vector<StreamedPart> told_;  // per sample; one for a search
};

}  // namespace espalier
