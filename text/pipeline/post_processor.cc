#include "text/pipeline/post_processor.h"

#include "base/status.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/sequence_steps.h"

namespace espalier {
namespace {

absl::StatusOr<TokenId> ReadAroundToken(const json::value& value,
                                        const std::string& place,
                                        int vocab_size) {
  if (!value.is_int64() || value.get_int64() < 0 ||
      value.get_int64() >= vocab_size) {
    return InvalidArgument(place, " must be a token in [0, ", vocab_size,
                           "), got ", Shown(&value));
  }
  return static_cast<TokenId>(value.get_int64());
}

// The tokens of special_tokens.NAME.
absl::StatusOr<std::vector<TokenId>> ReadSpecialToken(const JsonFields& fields,
                                                      const std::string& name,
                                                      int vocab_size) {
  ASSIGN_OR_RETURN(const json::object* all, fields.Object("special_tokens"));
  const json::value* value = all->if_contains(name);
  const std::string place =
      Concat(fields.Place("special_tokens"), "[", ShownInQuotes(name), "]");
  if (value == nullptr) return InvalidArgument(place, " is missing");
  ASSIGN_OR_RETURN(const JsonFields special, JsonFields::Of(*value, place));
  ASSIGN_OR_RETURN(const json::array* ids, special.Array("ids"));
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < ids->size(); ++i) {
    ASSIGN_OR_RETURN(
        const TokenId token,
        ReadAroundToken((*ids)[i], Concat(special.Place("ids"), "[", i, "]"),
                        vocab_size));
    tokens.push_back(token);
  }
  return tokens;
}

absl::StatusOr<TokensAround> ReadTemplate(const JsonFields& fields,
                                          int vocab_size) {
  RETURN_IF_ERROR(
      fields.CheckKnown({"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const json::array* single, fields.Array("single"));
  TokensAround around;
  int num_sequences = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields piece,
                     JsonFields::Of((*single)[i], Concat(fields.Place("single"),
                                                         "[", i, "]")));
    RETURN_IF_ERROR(piece.CheckKnown({"SpecialToken", "Sequence"}));
    const bool is_sequence = piece.Find("Sequence") != nullptr;
    const std::string_view kind = is_sequence ? "Sequence" : "SpecialToken";
    ASSIGN_OR_RETURN(const JsonFields content, piece.Inner(kind));
    ASSIGN_OR_RETURN(const std::string name, content.String("id"));
    if (is_sequence) {
      if (name != "A" || ++num_sequences > 1) {
        return content.Wrong("id", "A, once");
      }
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                     ReadSpecialToken(fields, name, vocab_size));
    std::vector<TokenId>& side =
        num_sequences == 0 ? around.before : around.after;
    side.insert(side.end(), tokens.begin(), tokens.end());
  }
  if (num_sequences == 0) return fields.Wrong("single", "around a sequence A");
  return around;
}

// "cls" and "sep": a name and its token.
absl::StatusOr<TokenId> ReadNamedToken(const JsonFields& fields,
                                       std::string_view name, int vocab_size) {
  ASSIGN_OR_RETURN(const json::array* pair, fields.Array(name));
  if (pair->size() != 2) return fields.Wrong(name, "a name and its token");
  return ReadAroundToken((*pair)[1], fields.Place(name) + "[1]", vocab_size);
}

absl::StatusOr<TokensAround> ReadSequenceAround(const JsonFields& fields,
                                                int vocab_size) {
  RETURN_IF_ERROR(fields.CheckKnown({"type", "processors"}));
  size_t num_steps = 0;
  ASSIGN_OR_RETURN(const json::array* list,
                   ReadSequenceSteps(fields, "processors", &num_steps));
  TokensAround all;
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(
        const TokensAround around,
        ReadPostProcessor((*list)[i],
                          Concat(fields.Place("processors"), "[", i, "]"),
                          vocab_size));
    all.before.insert(all.before.begin(), around.before.begin(),
                      around.before.end());
    all.after.insert(all.after.end(), around.after.begin(), around.after.end());
  }
  return all;
}

}  // namespace

absl::StatusOr<TokensAround> ReadPostProcessor(const json::value& value,
                                               const std::string& place,
                                               int vocab_size) {
  if (value.is_null()) return TokensAround();
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, place));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") return ReadSequenceAround(fields, vocab_size);
  if (type == "TemplateProcessing") return ReadTemplate(fields, vocab_size);
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(fields.CheckKnown(
        {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    return TokensAround();
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    RETURN_IF_ERROR(fields.CheckKnown(
        {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    ASSIGN_OR_RETURN(const TokenId cls,
                     ReadNamedToken(fields, "cls", vocab_size));
    ASSIGN_OR_RETURN(const TokenId sep,
                     ReadNamedToken(fields, "sep", vocab_size));
    return TokensAround{{cls}, {sep}};
  }
  return fields.Wrong("type", "a post-processor that is supported");
}

}  // namespace espalier
