#include "text/tokenizer/added_token_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

std::string_view TextOf(const json::value* value) {
  if (value == nullptr || !value->is_string()) return {};
  return std::string_view(value->get_string());
}

}  // namespace

AddedTokenTable::AddedTokenTable(const json::object& file) {
  const json::value* const model = file.if_contains("model");
  const json::value* const vocab =
      model != nullptr && model->is_object()
          ? model->get_object().if_contains("vocab")
          : nullptr;
  if (vocab != nullptr && vocab->is_object()) {
    vocab_ = &vocab->get_object();
    vocab_size_ = static_cast<int64_t>(vocab_->size());
  } else if (vocab != nullptr && vocab->is_array()) {
    const json::array& list = vocab->get_array();
    pieces_ = PieceIndex(list.size());
    for (const json::value& entry : list) {
      const bool is_entry = entry.is_array() && !entry.get_array().empty();
      // JsonTokenizer reports malformed entries.
      if (is_entry && entry.get_array()[0].is_string()) {
        pieces_.Add(entry.get_array()[0].get_string(),
                    static_cast<TokenId>(vocab_size_));
      }
      ++vocab_size_;
    }
  }
  const json::value* const added = file.if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return;
  for (const json::value& token : added->get_array()) {
    if (!token.is_object()) continue;
    const json::value* const id = token.get_object().if_contains("id");
    if (id == nullptr || !id->is_int64()) continue;
    ids_[std::string(TextOf(token.get_object().if_contains("content")))] =
        id->get_int64();
    tokens_[id->get_int64()] = token.get_object();
  }
}

void AddedTokenTable::Add(const TokenEntry& token) {
  if (token.content.empty()) return;
  int64_t id = IdOf(token.content);
  if (id < 0) {
    id = vocab_size_;
    if (!tokens_.empty()) id = std::max(id, tokens_.rbegin()->first + 1);
  }
  ids_[token.content] = id;
  TokenEntry added = token;
  const auto old = tokens_.find(id);
  const json::value* const was_special =
      old == tokens_.end() ? nullptr : old->second.if_contains("special");
  if (was_special != nullptr && *was_special == true) {
    added.normalized = token.normalized.value_or(!token.special);
    added.special = true;
  }
  tokens_[id] = added.ToJson(id);
}

bool AddedTokenTable::Has(std::string_view content) const {
  return ids_.find(content) != ids_.end();
}

absl::Status AddedTokenTable::AddTokensOf(const TokenSettings& settings,
                                          const std::string& path) {
  const std::vector<const TokenEntry*> named = settings.NamedTokens();
  std::set<std::string_view> names;
  for (const TokenEntry* token : named) names.insert(token->content);
  for (const auto& [id, listed] : settings.listed) {
    TokenEntry token = listed;
    token.special = token.special || names.contains(token.content);
    Add(token);
    const int64_t given = IdOf(token.content);
    if (given == id || settings.listed_in.empty()) continue;
    return InvalidArgument(settings.listed_in, ": ",
                           ShownInQuotes(token.content), " must have the id ",
                           given, " beside ", path, ", got ", id);
  }
  // Each once; of several that are spelt alike the last has its flags.
  std::vector<TokenEntry> added;
  std::set<TokenEntry> known;
  const auto add_new = [&](const TokenEntry& token) {
    const bool is_new = !Has(token.content) && known.insert(token).second;
    if (is_new) added.push_back(token);
  };
  for (const TokenEntry* token : named) add_new(*token);
  for (const TokenEntry& token : settings.ExtraTokens()) add_new(token);
  for (TokenEntry& token : added) {
    token.special = token.special || names.contains(token.content);
    Add(token);
  }
  return absl::OkStatus();
}

int64_t AddedTokenTable::IdOf(std::string_view content) const {
  if (const auto found = ids_.find(content); found != ids_.end()) {
    return found->second;
  }
  if (vocab_ != nullptr) {
    const json::value* const id = vocab_->if_contains(content);
    return id != nullptr && id->is_int64() ? id->get_int64() : -1;
  }
  const auto found = pieces_.Find(content);
  return found ? *found : -1;
}

json::array AddedTokenTable::ToJson() const {
  json::array added;
  added.reserve(tokens_.size());
  for (const auto& [id, token] : tokens_) added.emplace_back(token);
  return added;
}

}  // namespace espalier
