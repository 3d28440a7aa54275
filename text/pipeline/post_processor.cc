#include "text/pipeline/post_processor.h"

#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/sequence_steps.h"

namespace espalier {
namespace {

// Far more than models have around a text.
constexpr size_t kMaxAroundTokens = 65536;

// Item `idx` of the list at place().
template <typename Place>
absl::StatusOr<TokenId> ReadAroundToken(const json::array& list, size_t idx,
                                        const Place& place, int vocab_size) {
  const json::value& value = list[idx];
  if (!value.is_int64() || value.get_int64() < 0 ||
      value.get_int64() >= vocab_size) {
    return InvalidArgument(ItemPlace(place(), idx), " must be a token in [0, ",
                           vocab_size, "), got ", Shown(&value));
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
        ReadAroundToken(
            *ids, i, [&] { return special.Place("ids"); }, vocab_size));
    tokens.push_back(token);
  }
  return tokens;
}

// Each special token is read once, however often pieces name it.
class SpecialTokenReader {
 public:
  SpecialTokenReader(const JsonFields& fields, int vocab_size)
      : fields_(fields), vocab_size_(vocab_size) {}

  // Appends the tokens of `name` to `side`.
  // Errors: as ReadSpecialToken; kInvalidArgument if they are too many.
  absl::Status Append(const std::string& name, std::vector<TokenId>* side) {
    auto known = known_.find(name);
    if (known == known_.end()) {
      ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                       ReadSpecialToken(fields_, name, vocab_size_));
      known = known_.emplace(name, std::move(tokens)).first;
    }
    const std::vector<TokenId>& tokens = known->second;
    num_tokens_ += tokens.size();
    if (num_tokens_ > kMaxAroundTokens) {
      return InvalidArgument(fields_.Place("single"), " must be at most ",
                             kMaxAroundTokens, " tokens, got more");
    }
    side->insert(side->end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }

 private:
  const JsonFields& fields_;
  const int vocab_size_;
  std::map<std::string, std::vector<TokenId>> known_;
  size_t num_tokens_ = 0;
};

absl::StatusOr<TokensAround> ReadTemplate(const JsonFields& fields,
                                          int vocab_size) {
  RETURN_IF_ERROR(
      fields.CheckKnown({"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const json::array* single, fields.Array("single"));
  TokensAround around;
  SpecialTokenReader specials(fields, vocab_size);
  const std::string place = fields.Place("single");
  int num_sequences = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields piece,
                     JsonFields::OfItem(*single, i, place));
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
    RETURN_IF_ERROR(specials.Append(
        name, num_sequences == 0 ? &around.before : &around.after));
  }
  if (num_sequences == 0) return fields.Wrong("single", "around a sequence A");
  return around;
}

// "cls" and "sep": a name and its token.
absl::StatusOr<TokenId> ReadNamedToken(const JsonFields& fields,
                                       std::string_view name, int vocab_size) {
  ASSIGN_OR_RETURN(const json::array* pair, fields.Array(name));
  if (pair->size() != 2) return fields.Wrong(name, "a name and its token");
  return ReadAroundToken(
      *pair, 1, [&] { return fields.Place(name); }, vocab_size);
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
        ReadPostProcessor((*list)[i], ItemPlace(fields.Place("processors"), i),
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
