#include "text/tokenizer/t5_parts.h"

#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

constexpr int64_t kMaxExtraIds = 10'000;

}  // namespace

absl::StatusOr<int64_t> NumExtraIds(const TokenizerConfigFile& config,
                                    int64_t otherwise) {
  const json::value* value = config.Find("extra_ids");
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_int64() && value->get_int64() >= 0 &&
      value->get_int64() <= kMaxExtraIds) {
    return value->get_int64();
  }
  return InvalidArgument(config.path(),
                         ": extra_ids must be an integer in [0, ", kMaxExtraIds,
                         "], got ", Shown(value));
}

std::string NameOfGap(int64_t i) { return Concat("<extra_id_", i, ">"); }

void SetGaps(int64_t num_extra_ids, TokenSettings* settings) {
  settings->extra.clear();
  for (int64_t i = 0; i < num_extra_ids; ++i) {
    TokenEntry token;
    token.content = NameOfGap(i);
    token.special = true;
    settings->extra.push_back(std::move(token));
  }
  // They take the place of those of special_tokens_map.json.
  settings->has_extra = true;
}

json::object EndWithEos(const std::string& eos, int64_t eos_id) {
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
            {{"SpecialToken", {{"id", eos}, {"type_id", 0}}}}}},
          {"special_tokens",
           {{eos,
             {{"id", eos},
              {"ids", json::array{eos_id}},
              {"tokens", json::array{eos}}}}}}};
}

}  // namespace espalier
