#include "text/tokenizer/byt5_tokenizer.h"

#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/byte_level.h"
#include "text/tokenizer/added_token_table.h"
#include "text/tokenizer/json_tokenizer.h"
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
  if (!settings->ExtraTokens().empty()) return absl::OkStatus();
  for (int i = 0; i < kNumByt5ExtraIds; ++i) {
    TokenEntry token;
    token.content = Concat("<extra_id_", i, ">");
    token.special = true;
    settings->extra.push_back(std::move(token));
  }
  return absl::OkStatus();
}

json::object Byt5Vocabulary(const TokenSettings& settings) {
  json::object vocab;
  for (const char* const role : kByt5Roles) {
    const auto id = static_cast<int64_t>(vocab.size());
    vocab[settings.Find(role)->content] = id;
  }
  for (int byte = 0; byte < kNumBytes; ++byte) {
    const char c = static_cast<char>(byte);
    const auto id = static_cast<int64_t>(vocab.size());
    vocab[ToByteAlphabet(std::string_view(&c, 1))] = id;
  }
  return vocab;
}

json::object Byt5Steps(json::object vocab, const std::string& eos) {
  const json::object bytes = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", false},
                              {"use_regex", false}};
  const json::object post_processor = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", eos}, {"type_id", 0}}}}}},
      {"special_tokens",
       {{eos,
         {{"id", eos},
          {"ids", json::array{vocab.at(eos)}},
          {"tokens", json::array{eos}}}}}}};
  return {{"model",
           {{"type", "BPE"},
            {"vocab", std::move(vocab)},
            {"merges", json::array()}}},
          {"pre_tokenizer", bytes},
          {"post_processor", post_processor},
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
  json::object file =
      Byt5Steps(Byt5Vocabulary(settings), settings.Find("eos_token")->content);
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
