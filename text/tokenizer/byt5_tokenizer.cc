#include "text/tokenizer/byt5_tokenizer.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/byte_level.h"
#include "text/tokenizer/added_token_table.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/t5_parts.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

constexpr int kNumBytes = 256;
constexpr int kNumByt5ExtraIds = 125;
constexpr const char* kByt5Roles[] = {"pad_token", "eos_token", "unk_token"};

// Gives the roles their usual tokens, which take the white space around them,
// and the gaps theirs where no further special tokens are listed.
absl::Status SettleByt5Tokens(TokenSettings* settings) {
  settings->SetDefault("pad_token", "<pad>");
  settings->SetDefault("eos_token", "</s>");
  settings->SetDefault("unk_token", "<unk>");
  for (const char* const role : kByt5Roles) {
    std::optional<TokenEntry>& token = settings->roles.find(role)->second;
    if (!token || token->content.empty()) {
      return InvalidArgument(settings->config.path(), ": ", role,
                             " must be a token, got null");
    }
    if (token->is_plain) token->lstrip = token->rstrip = true;
  }
  ASSIGN_OR_RETURN(const int64_t num_extra_ids,
                   NumExtraIds(settings->config, kNumByt5ExtraIds));
  if (!settings->has_extra && settings->ExtraTokens().empty()) {
    SetGaps(num_extra_ids, settings);
  }
  return absl::OkStatus();
}

absl::StatusOr<json::object> Byt5Vocabulary(const TokenSettings& settings) {
  json::object vocab;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    const char c = static_cast<char>(byte);
    vocab[ToByteAlphabet(std::string_view(&c, 1))] =
        int64_t{std::size(kByt5Roles)} + byte;
  }
  int64_t next = 0;
  for (const char* const role : kByt5Roles) {
    const std::string& piece = settings.Find(role)->content;
    if (vocab.emplace(piece, next++).second) continue;
    return InvalidArgument(settings.config.path(), ": ", role,
                           " must differ from the pieces of bytes and from "
                           "other roles' tokens, got ",
                           ShownInQuotes(piece));
  }
  return vocab;
}

json::object Byt5Steps(json::object vocab, const std::string& eos) {
  const json::object bytes = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", false},
                              {"use_regex", false}};
  const int64_t eos_id = vocab.at(eos).as_int64();
  return {{"model",
           {{"type", "BPE"},
            {"vocab", std::move(vocab)},
            {"merges", json::array()}}},
          {"pre_tokenizer", bytes},
          {"post_processor", EndWithEos(eos, eos_id)},
          {"decoder", bytes}};
}

}  // namespace

absl::StatusOr<bool> IsByt5(const std::string& directory) {
  ASSIGN_OR_RETURN(
      const TokenizerConfigFile config,
      TokenizerConfigFile::Load(directory + "/tokenizer_config.json"));
  const json::value* const name = config.Find("tokenizer_class");
  return name != nullptr && *name == "ByT5Tokenizer";
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadByt5Tokenizer(
    const std::string& directory) {
  ASSIGN_OR_RETURN(TokenSettings settings,
                   TokenSettings::Load(directory, /*file=*/nullptr));
  RETURN_IF_ERROR(SettleByt5Tokens(&settings));
  const std::string& path = settings.config.path();
  ASSIGN_OR_RETURN(json::object vocab, Byt5Vocabulary(settings));
  json::object file =
      Byt5Steps(std::move(vocab), settings.Find("eos_token")->content);
  AddedTokenTable table(file);
  RETURN_IF_ERROR(table.AddTokensOf(settings, path));
  json::array added = table.ToJson();
  file["added_tokens"] = std::move(added);
  auto tokenizer = JsonTokenizer::Make(json::value(std::move(file)), 0,
                                       settings.Roles(), path);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace espalier
