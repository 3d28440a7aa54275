// Translation sentence by sentence (docs/sentences.md): which texts are split,
// and how the answers of their sentences become one. Each sentence is a request
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

// True if a text of several sentences is split. By default the texts of models
// that translate sentences are, unless the request has a field that is of one
// output: logprobs, prompt_logprobs, decoder_prompt, allowed_sequences,
// stochastic. `params` have the defaults of the model and the server.
// Errors: kInvalidArgument naming split_sentences, where the request asks for
// what cannot be.
absl::StatusOr<bool> IsSplit(const SplitChoice& choice,
                             const GenerationParams& params);

// Errors: kInvalidArgument where split_sentences true is asked for and the
// model does not translate.
absl::Status CheckSplitsTexts(const SplitChoice& choice);

struct SplitText {
  std::vector<std::string> sentences;  // at least two
  // White space in front of each in the answer; "" in front of the first.
  std::vector<std::string> separators;
};

// The field, such as "logprobs", for which a text of several sentences is taken
// as one although the model or the server would split it; empty if there is
// none. The answer may lack sentences then, so the caller is to be told.
std::string_view FieldOfWholeText(const SplitChoice& choice,
                                  const GenerationParams& params,
                                  const std::string& text);
// The words for it.
std::string WholeTextWarning(std::string_view field);

// Nullopt if `text` has one sentence, or none, or is not UTF-8. Sentences of a
// line are joined by a space, lines by the white space that is between them. A
// language that Marian's texts begin with, ">>fra<<", is that of each sentence.
// After `max_sentences` the rest is left out.
std::optional<SplitText> SplitIntoSentences(
    const std::string& text,
    size_t max_sentences = std::numeric_limits<size_t>::max());

// Has all of them draw with one seed, the first's, which is drawn if it has
// none: so that the seed of an answer gives it again.
void ShareSeed(const std::vector<Request*>& requests);

// The error of a sentence, counted from 0, which its message names where it is
// the sentence's fault.
absl::Status OfSentence(const absl::Status& error, size_t sentence,
                        size_t num_sentences);

class SentenceJoiner {
 public:
  // `params` are those of every sentence's request.
  SentenceJoiner(std::vector<std::string> separators,
                 const GenerationParams& params);

  // Turns an event of this sentence into one of the whole, if it has news. The
  // sentences of a stream are added one after the other.
  std::optional<StreamEvent> Add(size_t sentence, StreamEvent event);
  // The rest of the best hypothesis of a search, which is known once this
  // sentence has ended. After the last sentence it is in the answer.
  std::optional<StreamEvent> End(size_t sentence, const Generation& answer);

  // One answer, of those of all sentences. Its i-th hypothesis is made of the
  // i-th of each sentence, or of its last if it has fewer; samples are joined
  // by their numbers, unless they are the best of more. Scores, sums of
  // log-probabilities and usage are sums; finish_reason is that of a sentence
  // which was cut, if one was.
  Generation Join(std::vector<Generation> answers) const;

  size_t num_sentences() const { return separators_.size(); }

 private:
  // The part of a sample, or of a search, that events have had.
  struct StreamedPart {
    size_t num_separators = 1;
    bool ends_in_space = true;  // so does nothing
    size_t num_tokens = 0;      // of the sentence
    size_t num_bytes = 0;       // of the sentence's text
    FinishReason finish_reason = FinishReason::kEos;
  };

  // `text` of a sentence, with the separators in front of it that `told` has
  // not had: no space behind white space, and none for sentences without text.
  std::string Separated(size_t sentence, std::string text,
                        StreamedPart* told) const;
  std::optional<StreamEvent> AddSample(size_t sentence, SampleEvent event);
  std::optional<StreamEvent> AddPrefix(size_t sentence,
                                       StablePrefixEvent event);

  std::vector<std::string> separators_;
  bool is_search_;
  bool joins_by_sample_;
  std::vector<StreamedPart> told_;  // of each sample; of a search one
};

}  // namespace espalier
