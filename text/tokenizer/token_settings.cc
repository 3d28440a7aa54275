#include "text/tokenizer/token_settings.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/status.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {
namespace {

constexpr std::string_view kExtra = "extra_special_tokens";
constexpr std::string_view kOldExtra = "additional_special_tokens";
constexpr std::string_view kListed = "added_tokens_decoder";

absl::StatusOr<bool> FlagOf(const json::object& object, const char* name,
                            const std::string& place) {
  const json::value* const value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->get_bool();
  return InvalidArgument(place, ".", name, " must be true or false, got ",
                         Shown(value));
}

// A token at `place`: its spelling, which is special, or an object.
absl::StatusOr<TokenEntry> ReadEntry(const json::value& value,
                                     const std::string& place) {
  TokenEntry entry;
  if (value.is_string()) {
    entry.content = std::string(value.get_string());
    entry.special = entry.is_plain = true;
    return entry;
  }
  const json::value* const content =
      value.is_object() ? value.get_object().if_contains("content") : nullptr;
  if (content == nullptr || !content->is_string()) {
    return InvalidArgument(place,
                           " must be a string, or an object with \"content\", "
                           "got ",
                           Shown(&value));
  }
  const json::object& object = value.get_object();
  entry.content = std::string(content->get_string());
  ASSIGN_OR_RETURN(entry.single_word, FlagOf(object, "single_word", place));
  ASSIGN_OR_RETURN(entry.lstrip, FlagOf(object, "lstrip", place));
  ASSIGN_OR_RETURN(entry.rstrip, FlagOf(object, "rstrip", place));
  ASSIGN_OR_RETURN(entry.special, FlagOf(object, "special", place));
  if (const json::value* const normalized = object.if_contains("normalized");
      normalized != nullptr && !normalized->is_null()) {
    ASSIGN_OR_RETURN(entry.normalized, FlagOf(object, "normalized", place));
  }
  return entry;
}

// Reads the files one after the other into `settings`.
class SettingsReader {
 public:
  explicit SettingsReader(TokenSettings* settings) : settings_(settings) {}

  absl::Status ReadConfig() {
    RETURN_IF_ERROR(CheckSplitting());
    RETURN_IF_ERROR(ReadRoles(settings_->config, /*is_map=*/false));
    const TokenizerConfigFile& config = settings_->config;
    const json::value* extra = config.Find(kExtra);
    const bool has_new = extra != nullptr && !IsEmpty(*extra);
    if (!has_new && config.Find(kOldExtra) != nullptr) {
      extra = config.Find(kOldExtra);
    }
    if (extra == nullptr || extra->is_null()) return absl::OkStatus();
    settings_->has_extra = !extra->is_object();
    return ReadExtra(*extra,
                     Concat(config.path(), ": ", has_new ? kExtra : kOldExtra),
                     &settings_->extra);
  }

  // special_tokens_map.json goes before the config.
  absl::Status ReadMap(const TokenizerConfigFile& map) {
    RETURN_IF_ERROR(ReadRoles(map, /*is_map=*/true));
    for (const std::string_view field : {kExtra, kOldExtra}) {
      const json::value* const extra = map.Find(field);
      if (extra == nullptr || extra->is_null()) continue;
      RETURN_IF_ERROR(ReadExtra(
          *extra, Concat(map.path(), ": ", field),
          field == kExtra ? &settings_->extra : &settings_->older_extra));
    }
    return absl::OkStatus();
  }

  // {"50256": {"content": ...}}
  absl::Status ReadListed(const json::value& list) {
    settings_->listed_in = Concat(settings_->config.path(), ": ", kListed);
    if (!list.is_object()) {
      return InvalidArgument(settings_->listed_in, " must be an object, got ",
                             Shown(&list));
    }
    for (const auto& [key, value] : list.get_object()) {
      const std::string place = Concat(
          settings_->listed_in, "[", ShownInQuotes(std::string_view(key)), "]");
      int64_t id = -1;
      const auto [end, error] =
          std::from_chars(key.data(), key.data() + key.size(), id);
      const bool is_id = error == std::errc() &&
                         end == key.data() + key.size() && IsTokenId(id);
      if (!is_id || !value.is_object()) {
        return InvalidArgument(place, " must be an id with an object, got ",
                               Shown(&value));
      }
      ASSIGN_OR_RETURN(settings_->listed[id], ReadEntry(value, place));
    }
    return absl::OkStatus();
  }

  // {"<|user|>": 32010}
  absl::Status ReadAddedFile(const TokenizerConfigFile& file) {
    if (!file.object().empty()) settings_->listed_in = file.path();
    const std::set<std::string_view> special = SpecialNames();
    for (const auto& [key, value] : file.object()) {
      if (!value.is_int64() || !IsTokenId(value.get_int64())) {
        return InvalidArgument(file.path(), ": ",
                               ShownInQuotes(std::string_view(key)),
                               " must be an id in [0, ", Vocabulary::kMaxTokens,
                               "), got ", Shown(&value));
      }
      TokenEntry entry;
      entry.content = std::string(std::string_view(key));
      entry.special = special.contains(entry.content);
      settings_->listed[value.get_int64()] = std::move(entry);
    }
    return absl::OkStatus();
  }

  // Reads the added tokens of a tokenizer.json.
  absl::Status ReadAddedOf(const json::object& file) {
    const json::value* const added = file.if_contains("added_tokens");
    if (added == nullptr || !added->is_array()) return absl::OkStatus();
    for (const json::value& value : added->get_array()) {
      const json::value* const id =
          value.is_object() ? value.get_object().if_contains("id") : nullptr;
      // LoadDirectoryTokenizer refuses it.
      if (id == nullptr || !id->is_int64()) continue;
      ASSIGN_OR_RETURN(settings_->listed[id->get_int64()],
                       ReadEntry(value, "added_tokens"));
    }
    return absl::OkStatus();
  }

  // A role's token has the flags with which it is listed.
  void TakeFlags() {
    std::map<std::string_view, const TokenEntry*> by_content;
    for (const auto& [id, entry] : settings_->listed) {
      by_content[entry.content] = &entry;
    }
    for (auto& [role, token] : settings_->roles) {
      if (!token) continue;
      const auto found = by_content.find(token->content);
      if (found != by_content.end()) token = *found->second;
    }
  }

 private:
  static bool IsTokenId(int64_t id) {
    return id >= 0 && id < Vocabulary::kMaxTokens;
  }

  static bool IsEmpty(const json::value& value) {
    return value.is_null() || (value.is_array() && value.get_array().empty()) ||
           (value.is_object() && value.get_object().empty());
  }

  absl::Status CheckSplitting() const {
    ASSIGN_OR_RETURN(const auto splits,
                     settings_->config.Flag("split_special_tokens"));
    if (!splits.value_or(false)) return absl::OkStatus();
    return InvalidArgument(settings_->config.path(),
                           ": split_special_tokens must be false, got true");
  }

  static bool IsRole(std::string_view field) {
    return std::ranges::find(TokenSettings::kRoles, field) !=
           TokenSettings::kRoles.end();
  }

  absl::Status ReadRoles(const TokenizerConfigFile& file, bool is_map) {
    for (const auto& [key, value] : file.object()) {
      const std::string field(key);
      const std::string place = Concat(file.path(), ": ", field);
      if (IsRole(field)) {
        std::optional<TokenEntry>& token = settings_->roles[field];
        token.reset();
        if (value.is_null()) continue;
        ASSIGN_OR_RETURN(token, ReadEntry(value, place));
        if (is_map) token->special = true;
      } else if (field.ends_with("_token") &&
                 (value.is_string() || value.is_object())) {
        ASSIGN_OR_RETURN(TokenEntry entry, ReadEntry(value, place));
        settings_->named.push_back(std::move(entry));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadExtra(const json::value& value, const std::string& place,
                         std::vector<TokenEntry>* extra) {
    if (value.is_object()) {
      for (const auto& [key, token] : value.get_object()) {
        ASSIGN_OR_RETURN(TokenEntry entry, ReadEntry(token, place));
        settings_->named.push_back(std::move(entry));
      }
      return absl::OkStatus();
    }
    if (!value.is_array()) {
      return InvalidArgument(place, " must be a list of tokens, got ",
                             Shown(&value));
    }
    for (const json::value& token : value.get_array()) {
      ASSIGN_OR_RETURN(TokenEntry entry, ReadEntry(token, place));
      extra->push_back(std::move(entry));
    }
    return absl::OkStatus();
  }

  // The spellings of extra tokens and of those with a role.
  std::set<std::string_view> SpecialNames() const {
    std::set<std::string_view> names;
    for (const TokenEntry& token : settings_->extra) {
      names.insert(token.content);
    }
    for (const auto& [role, token] : settings_->roles) {
      if (token) names.insert(token->content);
    }
    return names;
  }

  TokenSettings* settings_;
};

}  // namespace

json::object TokenEntry::ToJson(int64_t id) const {
  return {{"id", id},
          {"content", content},
          {"single_word", single_word},
          {"lstrip", lstrip},
          {"rstrip", rstrip},
          {"normalized", normalized.value_or(!special)},
          {"special", special}};
}

absl::StatusOr<TokenSettings> TokenSettings::Load(const std::string& directory,
                                                  const json::object* file) {
  TokenSettings settings;
  SettingsReader reader(&settings);
  ASSIGN_OR_RETURN(settings.config, TokenizerConfigFile::Load(
                                        directory + "/tokenizer_config.json"));
  RETURN_IF_ERROR(reader.ReadConfig());
  const json::value* const listed = settings.config.Find(kListed);
  if (listed != nullptr && !listed->is_null()) {
    RETURN_IF_ERROR(reader.ReadListed(*listed));
  } else {
    ASSIGN_OR_RETURN(
        const auto map,
        TokenizerConfigFile::Load(directory + "/special_tokens_map.json"));
    RETURN_IF_ERROR(reader.ReadMap(map));
    ASSIGN_OR_RETURN(const auto added, TokenizerConfigFile::Load(
                                           directory + "/added_tokens.json"));
    RETURN_IF_ERROR(reader.ReadAddedFile(added));
    if (file != nullptr) RETURN_IF_ERROR(reader.ReadAddedOf(*file));
  }
  reader.TakeFlags();
  return settings;
}

const TokenEntry* TokenSettings::Find(std::string_view role) const {
  const auto found = roles.find(role);
  return found == roles.end() || !found->second ? nullptr : &*found->second;
}

void TokenSettings::SetDefault(std::string_view role,
                               std::string_view content) {
  TokenEntry entry;
  entry.content = content;
  entry.special = entry.is_plain = true;
  roles.try_emplace(std::string(role), std::move(entry));
}

std::vector<const TokenEntry*> TokenSettings::NamedTokens() const {
  std::vector<const TokenEntry*> tokens;
  for (const std::string_view role : kRoles) {
    if (const TokenEntry* token = Find(role)) tokens.push_back(token);
  }
  for (const TokenEntry& token : named) tokens.push_back(&token);
  return tokens;
}

const std::vector<TokenEntry>& TokenSettings::ExtraTokens() const {
  return extra.empty() && !has_extra ? older_extra : extra;
}

TokenizerConfig TokenSettings::Roles() const {
  const auto content =
      [&](std::string_view role) -> std::optional<std::string> {
    const TokenEntry* const token = Find(role);
    if (token == nullptr || token->content.empty()) return std::nullopt;
    return token->content;
  };
  return {.bos_token = content("bos_token"),
          .eos_token = content("eos_token"),
          .pad_token = content("pad_token"),
          .unk_token = content("unk_token")};
}

}  // namespace espalier
