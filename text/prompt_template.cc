#include "text/prompt_template.h"

#include <algorithm>
#include <utility>

#include "base/field_error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/prompt_template_file.h"

namespace espalier {
namespace {

constexpr char kFileName[] = "prompt_template.json";
constexpr size_t kMaxTemplateFileBytes = size_t{1} << 20;

// Formats a template for a list in an error: its name and direction.
std::string DescribeOne(const PromptTemplate& prompt) {
  if (prompt.from.empty()) return prompt.name;
  return Concat(prompt.name, " (", prompt.from, " to ", prompt.to, ")");
}

std::string DescribeAll(const std::vector<PromptTemplate>& templates) {
  std::string all;
  for (const PromptTemplate& prompt : templates) {
    if (!all.empty()) all += ", ";
    all += DescribeOne(prompt);
  }
  return all;
}

bool BeginsWith(std::span<const TokenId> tokens,
                std::span<const TokenId> part) {
  return part.size() <= tokens.size() &&
         std::ranges::equal(part, tokens.first(part.size()));
}

bool EndsWith(std::span<const TokenId> tokens, std::span<const TokenId> part) {
  return part.size() <= tokens.size() &&
         std::ranges::equal(part, tokens.last(part.size()));
}

PromptTemplate TextAlone(const Tokenizer& tokenizer) {
  PromptTemplate prompt;
  prompt.name = "default";
  prompt.before_text = tokenizer.before_text();
  prompt.after_text = tokenizer.after_text();
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> PromptTemplate::Apply(
    std::string_view text, const Tokenizer& tokenizer, int max_tokens,
    bool parse_special) const {
  const bool is_blank =
      text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  std::vector<TokenId> pieces;
  if (!is_blank) {
    absl::StatusOr<std::vector<TokenId>> encoded = tokenizer.Encode(
        text, {.parse_special = parse_special, .max_tokens = max_tokens});
    if (absl::IsInvalidArgument(encoded.status())) {
      return AnnotateField(encoded.status(), "prompt");
    }
    ASSIGN_OR_RETURN(pieces, std::move(encoded));
  }
  if (pieces.empty()) {
    return InvalidField("`prompt` must not be blank", Got(ShownInQuotes(text)));
  }
  std::vector<TokenId> prompt;
  if (!parse_special || !BeginsWith(pieces, before_text)) prompt = before_text;
  prompt.insert(prompt.end(), pieces.begin(), pieces.end());
  if (!parse_special || !EndsWith(pieces, after_text)) {
    prompt.insert(prompt.end(), after_text.begin(), after_text.end());
  }
  return prompt;
}

absl::StatusOr<PromptTemplates> PromptTemplates::Load(
    const std::string& dir, const Tokenizer& tokenizer) {
  const std::string path = dir + "/" + kFileName;
  const absl::StatusOr<std::string> text =
      ReadFile(path, kMaxTemplateFileBytes);
  if (absl::IsNotFound(text.status())) {
    return PromptTemplates({TextAlone(tokenizer)}, 0, tokenizer.languages());
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<PromptTemplates> templates = Parse(*text, tokenizer);
  if (!templates.ok()) return Annotate(templates.status(), path);
  return templates;
}

absl::StatusOr<PromptTemplates> PromptTemplates::Parse(
    std::string_view text, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(PromptTemplateFile file,
                   ParsePromptTemplateFile(text, tokenizer));
  PromptTemplates templates(std::move(file.templates), 0,
                            tokenizer.languages());
  const auto& all = templates.templates_;
  const auto chosen =
      std::ranges::find(all, file.default_name, &PromptTemplate::name);
  if (chosen == all.end()) {
    return InvalidArgument("default: no prompt template ",
                           ShownInQuotes(file.default_name), "; the file has ",
                           DescribeAll(all));
  }
  templates.default_idx_ = chosen - all.begin();
  return templates;
}

std::vector<std::string> PromptTemplates::names() const {
  std::vector<std::string> names = {default_template().name};
  for (const PromptTemplate& entry : templates_) {
    if (entry.name != names.front()) names.push_back(entry.name);
  }
  return names;
}

std::string PromptTemplates::Describe() const {
  std::string all = DescribeAll(templates_);
  if (languages_.empty()) return all;
  const std::string& first = languages_.all().front().code;
  const std::string& last = languages_.all().back().code;
  if (takes_target_alone()) {
    return Concat(all, ", and one of each of its languages, such as ", first);
  }
  return Concat(all, ", and one of each pair of its languages, such as ", first,
                "-", last);
}

bool PromptTemplates::AreAnswered(std::span<const TokenId> prompt) const {
  return std::ranges::any_of(templates_, [&](const PromptTemplate& one) {
    return !one.after_text.empty() && EndsWith(prompt, one.after_text);
  });
}

std::vector<TokenId> PromptTemplates::tokens() const {
  std::vector<TokenId> all;
  for (const PromptTemplate& prompt : templates_) {
    all.insert(all.end(), prompt.before_text.begin(), prompt.before_text.end());
    all.insert(all.end(), prompt.after_text.begin(), prompt.after_text.end());
  }
  return all;
}

absl::StatusOr<const PromptTemplate*> PromptTemplates::Find(
    std::string_view name) const {
  const auto found = std::ranges::find(templates_, name, &PromptTemplate::name);
  if (found != templates_.end()) return &*found;
  const size_t hyphen = name.find('-');
  const bool may_be_pair = !languages_.empty() && hyphen != name.npos;
  const auto find_pair = [&] {
    return FindDirection(name.substr(0, hyphen), name.substr(hyphen + 1));
  };
  if (takes_target_alone()) {
    absl::StatusOr<const PromptTemplate*> target = FindDirection("", name);
    const bool is_pair = !target.ok() && may_be_pair &&
                         languages_.Find(name.substr(hyphen + 1)).ok();
    return is_pair ? find_pair() : target;
  }
  if (may_be_pair) return find_pair();
  return NotFound("no prompt template ", ShownInQuotes(name),
                  "; the model has ", Describe());
}

absl::StatusOr<const PromptTemplate*> PromptTemplates::Find(
    std::string_view from, std::string_view to) const {
  for (const PromptTemplate& prompt : templates_) {
    if (!prompt.from.empty() && prompt.from == from && prompt.to == to) {
      return &prompt;
    }
  }
  if (!languages_.empty()) return FindDirection(from, to);
  return NotFound("no prompt template from ", ShownInQuotes(from), " to ",
                  ShownInQuotes(to), "; the model has ", Describe());
}

absl::StatusOr<const PromptTemplate*> PromptTemplates::FindDirection(
    std::string_view from, std::string_view to) const {
  const NaturalLanguage* source = nullptr;
  if (languages_.takes_source()) {
    ASSIGN_OR_RETURN(source, languages_.Find(from));
  }
  ASSIGN_OR_RETURN(const NaturalLanguage* const target, languages_.Find(to));
  if (source == nullptr && !from.empty()) {
    return NotFound("the model takes no source language, got ",
                    ShownInQuotes(from), "; give the target alone, ",
                    target->code);
  }
  const std::string name = source == nullptr
                               ? target->code
                               : Concat(source->code, "-", target->code);
  const std::lock_guard<std::mutex> lock(directions_->mutex);
  PromptTemplate& prompt = directions_->templates[name];
  if (prompt.name.empty()) {
    Direction direction = languages_.Between(source, *target);
    prompt.name = name;
    if (source != nullptr) prompt.from = source->code;
    prompt.to = target->code;
    prompt.before_text = std::move(direction.before_text);
    prompt.after_text = std::move(direction.after_text);
    prompt.first_output = direction.first_output;
  }
  return &prompt;
}

}  // namespace espalier
