// Prompt templates: the text around a caller's text in the prompts that a model
// was trained on. They belong to the model, so its directory contains them, in
// prompt_template.json:
//
//   {"default": "en-fr",
//    "templates": [
//      {"name": "en-fr", "from": "en", "to": "fr",
//       "description": "English to French",
//       "prompt": ["<s>", "<en>", {"text": true}, "<fr>"]}]}
//
// A string in "prompt" is one vocabulary entry, looked up by its spelling;
// {"text": true}, exactly once, is where the text goes, encoded by itself.
// "from" and "to" (a translation direction) come together or not at all, and
// "description" may be left out. Names are unique, and so are directions.
//
// A multilingual translator (Tokenizer::languages) has a template for every
// pair of its languages besides, "eng_Latn-fra_Latn", also by names of
// languages, "English-French"; these force the first token of the output as
// well. One that takes no source language has a template for every target,
// "fr" or "French".
//
// Thread safety: any thread may call.
//
//   ASSIGN_OR_RETURN(auto templates, PromptTemplates::Load(dir, tokenizer));
//   ASSIGN_OR_RETURN(auto* into_french, templates.Find("en", "fr"));
//   ASSIGN_OR_RETURN(auto prompt, into_french->Apply("Hello!", tokenizer));
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "text/tokenizer/languages.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct PromptTemplate {
  std::string name;
  // Languages of a translation; both empty if it is none, and `from` if the
  // model takes none.
  std::string from;
  std::string to;
  std::string description;
  std::vector<TokenId> before_text;
  std::vector<TokenId> after_text;
  // The first token of the output, which says its language.
  std::optional<TokenId> first_output = std::nullopt;

  // Returns before_text, the tokens of `text` encoded by itself, and
  // after_text. A text of far more than `max_tokens` is refused without
  // encoding all of it. With `parse_special`, names of special tokens in the
  // text become those tokens, and before_text and after_text are omitted if the
  // text already has them.
  // REQUIRES: `tokenizer` is the one that the template was loaded with.
  // Errors: as Tokenizer::Encode; kInvalidArgument if the text is blank: the
  // model would write something out of nothing.
  absl::StatusOr<std::vector<TokenId>> Apply(
      std::string_view text, const Tokenizer& tokenizer,
      int max_tokens = std::numeric_limits<int>::max(),
      bool parse_special = false) const;
};

// The templates of one model: at least one, of which one is the default.
class PromptTemplates {
 public:
  // Loads the templates of the model directory `dir`. A directory without
  // prompt_template.json has one template, named "default": the text between
  // the tokenizer's before_text(), usually BOS, and its after_text().
  // Errors: as ReadFile, but for a missing file; as Parse, naming the file.
  static absl::StatusOr<PromptTemplates> Load(const std::string& dir,
                                              const Tokenizer& tokenizer);

  // Parses `text`, the content of a prompt_template.json.
  // Errors: kInvalidArgument naming the field and its value: not JSON, a field
  // unknown, missing, empty or of the wrong type, a name or direction used
  // twice, a piece that the tokenizer lacks, a default that is no template.
  static absl::StatusOr<PromptTemplates> Parse(std::string_view text,
                                               const Tokenizer& tokenizer);

  // Returns the template of this name, or of this translation direction. The
  // pointer lives as long as this object.
  // Errors: kNotFound, listing what there is in the file's order, or the
  // languages that are closest first, or saying that the model takes no source
  // language.
  absl::StatusOr<const PromptTemplate*> Find(std::string_view name) const;
  absl::StatusOr<const PromptTemplate*> Find(std::string_view from,
                                             std::string_view to) const;

  // True if a direction is a target language alone.
  bool takes_target_alone() const {
    return !languages_.empty() && !languages_.takes_source();
  }

  // Returns the names, the default first, then in the file's order.
  std::vector<std::string> names() const;

  // Returns names and directions: "en-fr (en to fr), fr-en (fr to en)".
  std::string Describe() const;

  // True if `prompt` ends like a prompt of a template with text after the
  // caller's: the model answers it. It continues any other prompt.
  bool AreAnswered(std::span<const TokenId> prompt) const;

  // Returns the tokens around the texts of all templates, for
  // Tokenizer::MarkSpecial.
  std::vector<TokenId> tokens() const;

  const PromptTemplate& default_template() const {
    return templates_[default_idx_];
  }

 private:
  // Templates of languages by their names, each made when it is first asked
  // for.
  struct Directions {
    std::mutex mutex;
    std::map<std::string, PromptTemplate> templates ABSL_GUARDED_BY(mutex);
  };

  PromptTemplates(std::vector<PromptTemplate> templates, size_t default_idx,
                  NaturalLanguages languages)
      : templates_(std::move(templates)),
        default_idx_(default_idx),
        languages_(std::move(languages)),
        directions_(std::make_unique<Directions>()) {}

  // REQUIRES: there are languages.
  absl::StatusOr<const PromptTemplate*> FindDirection(
      std::string_view from, std::string_view to) const;

  std::vector<PromptTemplate> templates_;  // not empty
  size_t default_idx_;
  NaturalLanguages languages_;
  std::unique_ptr<Directions> directions_;
};

}  // namespace espalier
