#include "beam/constrain_to_items.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/strategy/selection_options.h"
#include "request/read_items.h"

namespace espalier {
namespace {

absl::Status NoCatalogue(const ItemCatalogues& catalogues,
                         const std::string& name) {
  const std::vector<std::string> names = catalogues.Names();
  std::string list;
  for (const std::string& known : names) {
    list += Concat(list.empty() ? "" : ", ", ShownInQuotes(known));
  }
  return InvalidField("`constraint.items` must name a catalogue, of which ",
                      names.empty() ? "there is none" : "there are ", list,
                      Got(ShownInQuotes(name)));
}

// Ids of an item before its last one end no sequence.
absl::Status CheckEndIds(const ItemCatalogue& items,
                         std::span<const TokenId> end_ids,
                         const std::string& name) {
  for (const TokenId id : end_ids) {
    if (!items.has_before_last(id)) continue;
    const std::vector<TokenId> item = items.ItemWithBeforeLast(id);
    return InvalidField(
        "`constraint.items`: an item of ", ShownInQuotes(name),
        " must not have an id that ends the output before its last token",
        Got(id, " as token ", std::ranges::find(item, id) - item.begin(),
            " of ", Shown(WriteJson(json::array(item.begin(), item.end())))));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenLists> ExcludedItems(
    const std::vector<TextOrTokens>& excluded, const Tokenizer* tokenizer) {
  TokenLists lists;
  for (size_t i = 0; i < excluded.size(); ++i) {
    std::vector<TokenId> of_text;
    const auto* tokens = std::get_if<std::vector<TokenId>>(&excluded[i]);
    if (tokens == nullptr) {
      const std::string& text = std::get<std::string>(excluded[i]);
      const std::string field = Concat("constraint.exclude[", i, "]");
      if (tokenizer == nullptr) {
        return InvalidField(FieldName{field},
                            " must be a list of ids without a tokenizer",
                            Got(ShownInQuotes(text)));
      }
      absl::StatusOr<std::vector<TokenId>> encoded =
          ItemOfText(*tokenizer, text);
      if (!encoded.ok()) {
        return InvalidField(FieldName{field}, ": ", Message(encoded.status()));
      }
      of_text = *std::move(encoded);
      tokens = &of_text;
    }
    lists.tokens.insert(lists.tokens.end(), tokens->begin(), tokens->end());
    lists.EndList();
  }
  return lists;
}

// Returns the error of a request that leaves no item.
absl::Status NoItem(const ItemConstraint& constraint,
                    const GenerationParams& params) {
  const ConstraintParams& given = *params.constraint;
  const int32_t max_length = constraint.items().max_length();
  const auto num_excluded =
      std::ssize(given.exclude) + std::ssize(given.exclude_prefixes);
  if (num_excluded == 0 || params.min_new_tokens > max_length) {
    return InvalidField(
        "`min_new_tokens` must leave an item of ", ShownInQuotes(*given.items),
        ", the longest of which has ", Pluralize(max_length, "token"),
        Got(params.min_new_tokens));
  }
  const std::string_view field =
      given.exclude.empty()            ? "constraint.exclude_prefixes"
      : given.exclude_prefixes.empty() ? "constraint.exclude"
                                       : "constraint";
  return InvalidField(
      FieldName{field}, " must leave an item of ", ShownInQuotes(*given.items),
      params.min_new_tokens > 0 ? Prose(" that `min_new_tokens` allows")
                                : Prose(""),
      Got(Pluralize(num_excluded, "exclusion")));
}

// Items that are too long for max_new_tokens are left out, but one must fit.
absl::Status CheckRoom(const ItemConstraint& constraint,
                       const GenerationParams& params) {
  const int32_t needed = constraint.MinRoom();
  if (needed < 0) return NoItem(constraint, params);
  if (params.max_new_tokens.value_or(needed) >= needed) return absl::OkStatus();
  return InvalidField("`max_new_tokens` must be at least ", needed,
                      ", which an item of `constraint` needs",
                      Got(*params.max_new_tokens));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ItemConstraint>> ConstrainToItems(
    const ItemCatalogues& catalogues, const Tokenizer* tokenizer,
    int vocab_size, const Request& request) {
  const GenerationParams& params = request.params;
  if (!params.constraint || !params.constraint->items) return nullptr;
  const std::string& name = *params.constraint->items;
  std::shared_ptr<const ItemCatalogue> items = catalogues.Find(name);
  if (items == nullptr) return NoCatalogue(catalogues, name);
  if (items->max_token() >= vocab_size) {
    return InvalidField("`constraint.items`: ids of ", ShownInQuotes(name),
                        " must be less than ", vocab_size,
                        Got(items->max_token()));
  }
  const SharedList<TokenId> end_ids = FinishingTokenIds(params);
  RETURN_IF_ERROR(CheckEndIds(*items, end_ids.items(), name));
  ItemOptions options = {
      .end_ids = end_ids.items(),
      .min_length = static_cast<int32_t>(std::min<int64_t>(
          params.min_new_tokens, std::numeric_limits<int32_t>::max())),
      .vocab_size = vocab_size};
  ASSIGN_OR_RETURN(options.excluded,
                   ExcludedItems(params.constraint->exclude, tokenizer));
  for (const std::vector<int64_t>& prefix :
       params.constraint->exclude_prefixes) {
    TokenLists& lists = options.excluded_prefixes;
    lists.tokens.insert(lists.tokens.end(), prefix.begin(), prefix.end());
    lists.EndList();
  }
  auto constraint = std::make_shared<const ItemConstraint>(std::move(items),
                                                           std::move(options));
  RETURN_IF_ERROR(CheckRoom(*constraint, params));
  return constraint;
}

}  // namespace espalier
