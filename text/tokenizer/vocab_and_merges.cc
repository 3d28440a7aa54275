#include "text/tokenizer/vocab_and_merges.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

constexpr size_t kMaxVocabFileBytes = size_t{64} << 20;

// GPT-2's class, or else RoBERTa's: whether the directory is of the former.
absl::StatusOr<bool> IsGpt2(const std::string& directory,
                            const TokenizerConfigFile& config) {
  const json::value* name = config.Find("tokenizer_class");
  std::string place = config.path() + ": tokenizer_class";
  // An object as well, that of the model.
  ASSIGN_OR_RETURN(const TokenizerConfigFile model,
                   TokenizerConfigFile::Load(directory + "/config.json"));
  if (name == nullptr || name->is_null()) {
    name = model.Find("model_type");
    place = model.path() + ": model_type";
  }
  if (name != nullptr) {
    for (const char* const gpt2 :
         {"gpt2", "GPT2Tokenizer", "GPT2TokenizerFast"}) {
      if (*name == gpt2) return true;
    }
    for (const char* const roberta :
         {"bart", "roberta", "BartTokenizer", "BartTokenizerFast",
          "RobertaTokenizer", "RobertaTokenizerFast"}) {
      if (*name == roberta) return false;
    }
  }
  return InvalidArgument(
      place, " of a vocab.json with a merges.txt must be that of GPT-2, ",
      "RoBERTa or BART, got ", Shown(name));
}

// The names that tokens with a role have unless the config has others.
void SetDefaults(bool is_gpt2, TokenizerConfig* config) {
  const auto set = [](std::optional<std::string>* token, const char* name) {
    if (!*token) *token = name;
  };
  set(&config->bos_token, is_gpt2 ? "<|endoftext|>" : "<s>");
  set(&config->eos_token, is_gpt2 ? "<|endoftext|>" : "</s>");
  set(&config->unk_token, is_gpt2 ? "<|endoftext|>" : "<unk>");
  if (!is_gpt2) set(&config->pad_token, "<pad>");
}

// An entry of added_tokens for `piece`, which has a role.
absl::StatusOr<json::object> Special(const TokenizerConfigFile& config,
                                     const json::object& vocab,
                                     const std::string& role,
                                     const std::string& piece) {
  const json::value* const id = vocab.if_contains(piece);
  if (id == nullptr) {
    return InvalidArgument(config.path(), ": ", role,
                           " must be a token of vocab.json, got ",
                           ShownInQuotes(piece));
  }
  json::object token = {{"id", *id}, {"content", piece}, {"special", true}};
  const json::value* const given = config.Find(role);
  if (given == nullptr || !given->is_object()) return token;
  for (const char* const flag : {"lstrip", "rstrip", "single_word"}) {
    const json::value* const value = given->get_object().if_contains(flag);
    if (value != nullptr) token[flag] = *value;
  }
  return token;
}

// Those of the config's added_tokens_decoder, {"50256": {"content": ...}}.
absl::Status AddListed(const TokenizerConfigFile& config, json::array* added) {
  const json::value* const list = config.Find("added_tokens_decoder");
  if (list == nullptr || list->is_null()) return absl::OkStatus();
  if (!list->is_object()) {
    return InvalidArgument(config.path(),
                           ": added_tokens_decoder must be an object, got ",
                           Shown(list));
  }
  for (const auto& [key, value] : list->get_object()) {
    int id = -1;
    const auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() ||
        !value.is_object()) {
      return InvalidArgument(config.path(), ": added_tokens_decoder[",
                             ShownInQuotes(std::string_view(key)),
                             "] must be an id with an object, got ",
                             Shown(&value));
    }
    json::object token = value.get_object();
    token["id"] = id;
    added->push_back(std::move(token));
  }
  return absl::OkStatus();
}

// The tokens with a role, and those that the config lists, each once.
absl::StatusOr<json::array> AddedTokensOf(const TokenizerConfigFile& file,
                                          const TokenizerConfig& config,
                                          const json::object& vocab,
                                          bool is_gpt2) {
  json::array added;
  RETURN_IF_ERROR(AddListed(file, &added));
  ASSIGN_OR_RETURN(auto mask, file.Token("mask_token"));
  if (!is_gpt2 && !mask && vocab.contains("<mask>")) mask = "<mask>";
  const std::pair<const char*, std::optional<std::string>> roles[] = {
      {"bos_token", config.bos_token},
      {"eos_token", config.eos_token},
      {"unk_token", config.unk_token},
      {"pad_token", config.pad_token},
      {"mask_token", mask}};
  for (const auto& role : roles) {
    if (!role.second) continue;
    const std::string& piece = *role.second;
    const bool is_there = std::ranges::any_of(added, [&](const auto& token) {
      const json::value* const content =
          token.get_object().if_contains("content");
      return content != nullptr && content->is_string() &&
             content->get_string() == piece;
    });
    if (is_there) continue;
    ASSIGN_OR_RETURN(json::object token,
                     Special(file, vocab, role.first, piece));
    added.push_back(std::move(token));
  }
  return added;
}

// The lines of merges.txt but for its comment, "#version: 0.2".
json::array MergesOf(std::string_view text) {
  json::array merges;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version"))
      merges.emplace_back(json::string_view(line));
  }
  return merges;
}

// The steps around the pieces.
json::object StepsOf(bool is_gpt2, bool add_prefix_space,
                     const TokenizerConfig& config, const json::object& vocab) {
  const json::object byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", add_prefix_space},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
  json::object file = {{"pre_tokenizer", byte_level}, {"decoder", byte_level}};
  if (!is_gpt2) {
    const auto with_id = [&](const std::string& piece) {
      const json::value* const id = vocab.if_contains(piece);
      return json::array{piece, id == nullptr ? json::value() : *id};
    };
    file["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", with_id(*config.eos_token)},
                              {"cls", with_id(*config.bos_token)},
                              {"trim_offsets", true},
                              {"add_prefix_space", add_prefix_space}};
  }
  return file;
}

absl::StatusOr<json::object> ReadVocab(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxVocabFileBytes));
  const absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidArgument(path, " must hold an object, got ", Shown(&*value));
  }
  return value->get_object();
}

// Further tokens, by an older way to write them.
absl::Status CheckNoAddedFile(const std::string& directory) {
  const std::string path = directory + "/added_tokens.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  return InvalidArgument(path,
                         " is not supported: a tokenizer.json would have its "
                         "tokens");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadVocabAndMerges(
    const std::string& directory) {
  ASSIGN_OR_RETURN(
      const TokenizerConfigFile file,
      TokenizerConfigFile::Load(directory + "/tokenizer_config.json"));
  ASSIGN_OR_RETURN(const bool is_gpt2, IsGpt2(directory, file));
  RETURN_IF_ERROR(CheckNoAddedFile(directory));
  ASSIGN_OR_RETURN(TokenizerConfig config, TokenizerConfig::Of(file));
  SetDefaults(is_gpt2, &config);
  ASSIGN_OR_RETURN(const auto prefix_space, file.Flag("add_prefix_space"));
  const std::string path = directory + "/vocab.json";
  ASSIGN_OR_RETURN(json::object vocab, ReadVocab(path));
  ASSIGN_OR_RETURN(const std::string merges,
                   ReadFile(directory + "/merges.txt", kMaxVocabFileBytes));
  json::object tokenizer_json =
      StepsOf(is_gpt2, prefix_space.value_or(false), config, vocab);
  ASSIGN_OR_RETURN(tokenizer_json["added_tokens"],
                   AddedTokensOf(file, config, vocab, is_gpt2));
  tokenizer_json["model"] = {{"type", "BPE"},
                             {"vocab", std::move(vocab)},
                             {"merges", MergesOf(merges)}};
  auto tokenizer =
      JsonTokenizer::Parse(WriteJson(tokenizer_json), config, path);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(), path + " and merges.txt");
  }
  return tokenizer;
}

}  // namespace espalier
