// A generation_config.json: refused by its name, or defaults that make no good
// request a bad one.
#include "request/json/generation_config.h"

#include "base/check.h"
#include "base/status.h"
#include "request/resolve_defaults.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

absl::StatusOr<GenerationDefaults> LoadDefaults(const std::string& path,
                                                const ModelDescription& model) {
  ASSIGN_OR_RETURN(const json::object config, ReadConfigObject(path));
  ASSIGN_OR_RETURN(GenerationDefaults defaults,
                   ReadGenerationDefaults(config, path, DefaultsOf::kGiven));
  RETURN_IF_ERROR(CheckDefaults(defaults, model));
  return defaults;
}

FUZZ_TARGET(generation_config, input) {
  const MemoryFile file(input);
  const ModelDescription model = {
      .vocab_size = 100, .max_context = 50, .eos_token_ids = {2}};
  const auto defaults = LoadDefaults(file.path(), model);
  if (!defaults.ok()) {
    CheckBadInput(defaults.status());
    return;
  }
  GenerationParams greedy, beams, sampled;
  beams.num_beams = 4;
  sampled.do_sample = true;
  for (GenerationParams params : {greedy, beams, sampled}) {
    const auto given = DifferingParams(params);
    params = ResolveDefaults({.model = &*defaults}, std::move(params), given,
                             model, /*num_prompt_tokens=*/3)
                 .params;
    params.bad_words.clear();  // texts, for which there is no tokenizer
    const absl::Status status = ValidateParams(model, 3, &params);
    CHECK(status.ok()) << status.ToString();
  }
  if (!defaults->unsupported.empty()) {
    CHECK(!UnsupportedWarning(*defaults).empty());
  }
}

}  // namespace

}  // namespace espalier::fuzz
