// The content of a prompt_template.json (text/prompt_template.h shows it), read
// strictly: every field is known and checked, and an error names its place and
// value. What one template says is settled here; that the default is one of
// them is settled by PromptTemplates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct PromptTemplateFile {
  std::string default_name;
  std::vector<PromptTemplate> templates;  // not empty; in the file's order
};

// Errors: as PromptTemplates::Parse, but for the default.
absl::StatusOr<PromptTemplateFile> ParsePromptTemplateFile(
    std::string_view text, const Tokenizer& tokenizer);

}  // namespace espalier
