#include "text/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

using enum TokenizerClass;

// Without "Fast", which says nothing today.
constexpr std::pair<std::string_view, TokenizerClass> kClasses[] = {
    {"TokenizersBackend", kGeneric},
    {"PreTrainedTokenizer", kGeneric},
    {"PythonBackend", kGeneric},
    {"BloomTokenizer", kGeneric},
    {"LlamaTokenizer", kLlama},
    {"GemmaTokenizer", kGemma},
    {"Qwen2Tokenizer", kQwen2},
    {"GPT2Tokenizer", kGpt2},
    {"RobertaTokenizer", kRoberta},
    {"BartTokenizer", kRoberta},
    {"T5Tokenizer", kT5},
    {"MT5Tokenizer", kT5},
    {"NllbTokenizer", kNllb},
    {"MBartTokenizer", kMbart},
    {"MBart50Tokenizer", kMbart50},
    {"M2M100Tokenizer", kM2m100}};

// The class that a model's type has unless its files have another one. Some
// types' files are known to have a wrong one.
struct ModelClass {
  std::string_view model_type;
  TokenizerClass tokenizer_class;
  bool is_certain = false;
};
constexpr ModelClass kModelClasses[] = {{"mistral", kGeneric},
                                        {"phi3", kGeneric, true},
                                        {"stablelm", kGeneric},
                                        {"granite", kGeneric},
                                        {"umt5", kGeneric},
                                        {"pegasus_x", kGeneric},
                                        {"qwen2", kQwen2, true},
                                        {"qwen2_moe", kQwen2},
                                        {"qwen3", kQwen2},
                                        {"qwen3_moe", kQwen2},
                                        {"gemma", kGemma},
                                        {"gemma2", kGemma},
                                        {"gemma3", kGemma},
                                        {"gemma3_text", kGemma},
                                        {"gpt2", kGpt2},
                                        {"opt", kGpt2},
                                        {"phi", kGpt2},
                                        {"bart", kRoberta},
                                        {"roberta", kRoberta},
                                        {"t5", kT5},
                                        {"mt5", kT5},
                                        {"m2m_100", kM2m100},
                                        {"mbart", kMbart},
                                        {"marian", kOther},
                                        {"pegasus", kOther}};

TokenizerClass ClassOf(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto* const found =
      std::ranges::find(kClasses, name, [](const auto& c) { return c.first; });
  return found == std::end(kClasses) ? kOther : found->second;
}

absl::StatusOr<std::optional<std::string>> TextOf(
    const TokenizerConfigFile& file, std::string_view field) {
  const json::value* const value = file.Find(field);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  return InvalidArgument(file.path(), ": ", field, " must be a string, got ",
                         Shown(value));
}

// True if a step of the tokenizer.json is a ByteLevel.
bool HasByteLevel(const json::value& value) {
  if (value.is_array()) {
    return std::ranges::any_of(value.get_array(), HasByteLevel);
  }
  if (!value.is_object()) return false;
  const json::object& step = value.get_object();
  const json::value* const type = step.if_contains("type");
  if (type != nullptr && *type == "ByteLevel") return true;
  for (const char* const list : {"pretokenizers", "decoders", "processors"}) {
    const json::value* const steps = step.if_contains(list);
    if (steps != nullptr && HasByteLevel(*steps)) return true;
  }
  return false;
}

bool IsByteLevel(const json::object& file) {
  for (const char* const part :
       {"pre_tokenizer", "decoder", "post_processor"}) {
    const json::value* const steps = file.if_contains(part);
    if (steps != nullptr && HasByteLevel(*steps)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<TokenizerClass> FindTokenizerClass(
    const std::string& directory, const TokenizerConfigFile& config,
    const json::object* file) {
  // An object as well, that of the model.
  ASSIGN_OR_RETURN(const auto model,
                   TokenizerConfigFile::Load(directory + "/config.json"));
  ASSIGN_OR_RETURN(auto name, TextOf(config, "tokenizer_class"));
  if (!name) {
    ASSIGN_OR_RETURN(name, TextOf(model, "tokenizer_class"));
  }
  ASSIGN_OR_RETURN(const auto type, TextOf(model, "model_type"));
  const auto* const of_model = std::ranges::find(
      kModelClasses, type.value_or(""), &ModelClass::model_type);
  const bool has_model = of_model != std::end(kModelClasses);
  if (!name) return has_model ? of_model->tokenizer_class : kGeneric;
  const TokenizerClass named = ClassOf(*name);
  const bool is_certain = has_model && of_model->is_certain;
  // Llama 3's files name another class than the one that applies.
  if (named == kLlama && !is_certain && file != nullptr && IsByteLevel(*file)) {
    return kGeneric;
  }
  if (!has_model || of_model->tokenizer_class == named) return named;
  if (is_certain || of_model->tokenizer_class == kGeneric) {
    return of_model->tokenizer_class;
  }
  return named;
}

std::string_view NameOf(TokenizerClass tokenizer_class) {
  if (tokenizer_class == kOther) return "another class";
  return std::ranges::find(kClasses, tokenizer_class,
                           [](const auto& c) { return c.second; })
      ->first;
}

}  // namespace espalier
