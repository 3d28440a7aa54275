#include "text/tokenizer/class_steps.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/pipeline/base64.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/unicode.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {
namespace {

using enum TokenizerClass;
using PieceType = SentencePieceModel::Type;

constexpr char kVisibleSpace[] = "\u2581";
constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json::object Replace(const char* kind, const char* pattern,
                     const char* content) {
  return {{"type", "Replace"},
          {"pattern", {{kind, pattern}}},
          {"content", content}};
}

json::object Sequence(const char* field, json::array steps) {
  return {{"type", "Sequence"}, {field, std::move(steps)}};
}

json::object MetaspaceOf(const char* scheme) {
  return {{"type", "Metaspace"},
          {"replacement", kVisibleSpace},
          {"prepend_scheme", scheme},
          {"split", false}};
}

json::object ByteLevel(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// From pieces back to text; `strips` drops the space that opens it.
json::object SpaceDecoder(bool has_bytes, bool strips) {
  json::array steps = {Replace("String", kVisibleSpace, " ")};
  if (has_bytes) steps.push_back(json::object{{"type", "ByteFallback"}});
  steps.push_back(json::object{{"type", "Fuse"}});
  if (strips) {
    steps.push_back(json::object{
        {"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return Sequence("decoders", std::move(steps));
}

// The library makes no bytes where the vocabulary lacks them.
bool HasByteTokens(const json::object& model) {
  return model.at("vocab").is_object() &&
         model.at("vocab").get_object().contains(FallbackPiece(0));
}

absl::StatusOr<json::object> LlamaFile(json::object model,
                                       const TokenSettings& settings) {
  ASSIGN_OR_RETURN(const auto prefix, settings.config.Flag("add_prefix_space"));
  ASSIGN_OR_RETURN(const auto legacy, settings.config.Flag("legacy"));
  const bool adds_space = prefix.value_or(true);
  const char* const scheme = !adds_space              ? "never"
                             : legacy.value_or(false) ? "always"
                                                      : "first";
  model["byte_fallback"] = HasByteTokens(model);
  model["fuse_unk"] = true;
  return json::object{{"pre_tokenizer", MetaspaceOf(scheme)},
                      {"decoder", SpaceDecoder(true, adds_space)},
                      {"model", std::move(model)}};
}

absl::StatusOr<json::object> GemmaFile(json::object model,
                                       const TokenSettings& settings) {
  model["byte_fallback"] = HasByteTokens(model);
  model["fuse_unk"] = true;
  const TokenEntry* const unk = settings.Find("unk_token");
  if (unk != nullptr && model.at("vocab").get_object().contains(unk->content)) {
    model["unk_token"] = unk->content;
  }
  return json::object{{"normalizer", Replace("String", " ", kVisibleSpace)},
                      {"pre_tokenizer",
                       {{"type", "Split"},
                        {"pattern", {{"String", " "}}},
                        {"behavior", "MergedWithPrevious"},
                        {"invert", false}}},
                      {"decoder", SpaceDecoder(true, false)},
                      {"model", std::move(model)}};
}

absl::StatusOr<json::object> ByteLevelFile(json::object model,
                                           const TokenSettings& settings) {
  ASSIGN_OR_RETURN(const auto prefix, settings.config.Flag("add_prefix_space"));
  const json::object step = ByteLevel(prefix.value_or(false), true);
  return json::object{{"pre_tokenizer", step},
                      {"decoder", ByteLevel(true, true)},
                      {"model", std::move(model)}};
}

absl::StatusOr<json::object> Qwen2File(json::object model,
                                       const TokenSettings& settings) {
  ASSIGN_OR_RETURN(const auto prefix, settings.config.Flag("add_prefix_space"));
  const json::object split = {{"type", "Split"},
                              {"pattern", {{"Regex", kQwen2Pattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  return json::object{
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       Sequence("pretokenizers",
                {split, ByteLevel(prefix.value_or(false), false)})},
      {"decoder", ByteLevel(true, true)},
      {"model", std::move(model)}};
}

// Pieces by id, with the names that the config lists for them.
std::vector<std::string> NamedPieces(const SentencePieceModel& model,
                                     const TokenSettings& settings) {
  std::vector<std::string> pieces;
  std::map<std::string_view, int64_t> kept;  // that are not renamed
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    const auto id = static_cast<int64_t>(pieces.size());
    if (!settings.listed.contains(id)) kept.emplace(entry.piece, id);
    pieces.emplace_back(entry.piece);
  }
  for (const auto& [id, token] : settings.listed) {
    const bool is_piece = id < static_cast<int64_t>(pieces.size());
    if (is_piece && !kept.contains(token.content)) pieces[id] = token.content;
  }
  return pieces;
}

// Only normal pieces are merged, the likelier first.
json::array RankedMerges(const SentencePieceModel& model,
                         const std::vector<std::string>& pieces) {
  PieceIndex normal(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::kNormal) {
      normal.Add(pieces[id], static_cast<TokenId>(id));
    }
  }
  using Merge = std::tuple<float, TokenId, size_t>;  // -score, id, cut
  std::vector<Merge> ranked;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view piece = pieces[id];
    if (model.pieces[id].type != PieceType::kNormal || piece.empty()) continue;
    for (size_t cut = CharacterSize(piece[0]); cut < piece.size();
         cut += CharacterSize(piece[cut])) {
      if (normal.Find(piece.substr(0, cut)) && normal.Find(piece.substr(cut))) {
        ranked.emplace_back(-model.pieces[id].score, static_cast<TokenId>(id),
                            cut);
      }
    }
  }
  // For one piece, each left side is a prefix of the longer ones: the shorter
  // sorts first.
  std::ranges::sort(ranked);
  json::array merges;
  merges.reserve(ranked.size());
  for (const auto& [score, id, cut] : ranked) {
    merges.push_back(json::array{std::string_view(pieces[id]).substr(0, cut),
                                 std::string_view(pieces[id]).substr(cut)});
  }
  return merges;
}

// A regular expression of any of `pieces`, longest first.
std::string PatternOf(std::vector<std::string> pieces) {
  const auto num_characters = [](const std::string& piece) {
    return std::ranges::count_if(
        piece, [](char byte) { return (byte & 0xC0) != 0x80; });
  };
  std::ranges::stable_sort(pieces, std::greater(), num_characters);
  std::string pattern;
  for (const std::string& piece : pieces) {
    if (!pattern.empty()) pattern += '|';
    for (const char byte : piece) {
      constexpr std::string_view kMeta = "()[]{}?*+|^$\\.";
      if (kMeta.find(byte) != kMeta.npos) pattern += '\\';
      pattern += byte;
    }
  }
  return pattern;
}

json::object SentencePieceNormalizer(const SentencePieceModel& model,
                                     bool legacy) {
  json::array steps;
  if (!model.charsmap.empty()) {
    steps.push_back(
        json::object{{"type", "Precompiled"},
                     {"precompiled_charsmap", ToBase64(model.charsmap)}});
  }
  if (model.remove_extra_whitespaces) {
    steps.push_back(Replace("Regex", R"(\A +| +\z)", ""));
    steps.push_back(Replace("Regex", " {2,}", " "));
  }
  if (model.escape_whitespaces) {
    steps.push_back(Replace("String", " ", kVisibleSpace));
  }
  if (model.add_dummy_prefix && legacy) {
    steps.push_back(Replace("Regex", "\\A\u2581", "\u2581\u2581"));
  }
  return Sequence("normalizers", std::move(steps));
}

json::object GenericModel(const SentencePieceModel& model,
                          const std::vector<std::string>& pieces,
                          bool has_user_defined) {
  json::object file = {{"byte_fallback", model.byte_fallback}};
  if (model.is_unigram) {
    json::array vocab;
    for (const SentencePieceModel::Entry& entry : model.pieces) {
      vocab.push_back(
          json::array{entry.piece, static_cast<double>(entry.score)});
    }
    file["type"] = "Unigram";
    file["unk_id"] = model.unk.id;
    file["vocab"] = std::move(vocab);
    return file;
  }
  json::object vocab;
  for (size_t id = 0; id < pieces.size(); ++id)
    vocab[pieces[id]] = static_cast<int64_t>(id);
  if (vocab.contains(model.unk.piece)) file["unk_token"] = model.unk.piece;
  file["type"] = "BPE";
  file["fuse_unk"] = true;
  file["ignore_merges"] = has_user_defined;
  file["vocab"] = std::move(vocab);
  file["merges"] = RankedMerges(model, pieces);
  return file;
}

}  // namespace

void SetDefaultRoles(TokenizerClass tokenizer_class, TokenSettings* settings) {
  const auto set = [&](std::string_view role, std::string_view content) {
    settings->SetDefault(role, content);
  };
  switch (tokenizer_class) {
    case kLlama:
      set("unk_token", "<unk>");
      set("bos_token", "<s>");
      set("eos_token", "</s>");
      return;
    case kGemma:
      set("unk_token", "<unk>");
      set("bos_token", "<bos>");
      set("eos_token", "<eos>");
      set("pad_token", "<pad>");
      set("mask_token", "<mask>");
      return;
    case kQwen2:
      set("unk_token", "<|endoftext|>");
      set("eos_token", "<|endoftext|>");
      set("pad_token", "<|endoftext|>");
      return;
    case kGpt2:
      set("unk_token", "<|endoftext|>");
      set("bos_token", "<|endoftext|>");
      set("eos_token", "<|endoftext|>");
      return;
    case kRoberta:
      set("bos_token", "<s>");
      set("eos_token", "</s>");
      set("sep_token", "</s>");
      set("cls_token", "<s>");
      set("unk_token", "<unk>");
      set("pad_token", "<pad>");
      set("mask_token", "<mask>");
      return;
    case kT5:
      set("eos_token", "</s>");
      set("unk_token", "<unk>");
      set("pad_token", "<pad>");
      return;
    case kNllb:
    case kMbart:
      set("bos_token", "<s>");
      [[fallthrough]];
    case kMbart50:
      set("eos_token", "</s>");
      set("unk_token", "<unk>");
      set("sep_token", "</s>");
      set("pad_token", "<pad>");
      set("cls_token", "<s>");
      set("mask_token", "<mask>");
      return;
    case kM2m100:
      set("bos_token", "<s>");
      set("eos_token", "</s>");
      set("unk_token", "<unk>");
      set("sep_token", "</s>");
      set("pad_token", "<pad>");
      return;
    case kGeneric:
    case kOther:
      return;
  }
}

bool HasOwnSteps(TokenizerClass tokenizer_class) {
  return tokenizer_class == kLlama || tokenizer_class == kGemma ||
         tokenizer_class == kQwen2 || tokenizer_class == kGpt2 ||
         tokenizer_class == kRoberta;
}

absl::StatusOr<json::object> AddClassSteps(TokenizerClass tokenizer_class,
                                           json::object model,
                                           const TokenSettings& settings) {
  model["type"] = "BPE";
  switch (tokenizer_class) {
    case kLlama:
      return LlamaFile(std::move(model), settings);
    case kGemma:
      return GemmaFile(std::move(model), settings);
    case kQwen2:
      return Qwen2File(std::move(model), settings);
    default:
      return ByteLevelFile(std::move(model), settings);
  }
}

absl::StatusOr<json::object> GenericFileOf(const SentencePieceModel& model,
                                           TokenSettings* settings) {
  ASSIGN_OR_RETURN(const auto is_legacy, settings->config.Flag("legacy"));
  // transformers takes null for false.
  const bool legacy =
      settings->config.Find("legacy") == nullptr || is_legacy.value_or(false);
  const std::vector<std::string> pieces = NamedPieces(model, *settings);
  std::vector<std::string> user_defined;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::kUserDefined) {
      user_defined.push_back(
          model.is_unigram ? std::string(model.pieces[id].piece) : pieces[id]);
    }
  }
  json::array splits;
  if (model.add_dummy_prefix) {
    splits.push_back(MetaspaceOf(legacy ? "always" : "first"));
  }
  if (!user_defined.empty()) {
    splits.push_back(
        json::object{{"type", "Split"},
                     {"pattern", {{"Regex", PatternOf(user_defined)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  json::object file = {
      {"normalizer", SentencePieceNormalizer(model, legacy)},
      {"decoder", SpaceDecoder(model.byte_fallback, model.add_dummy_prefix)},
      {"model", GenericModel(model, pieces, !user_defined.empty())}};
  if (!splits.empty()) {
    file["pre_tokenizer"] = Sequence("pretokenizers", std::move(splits));
  }
  if (model.bos.id >= 0) settings->SetDefault("bos_token", model.bos.piece);
  if (model.eos.id >= 0) settings->SetDefault("eos_token", model.eos.piece);
  if (model.unk.id >= 0) settings->SetDefault("unk_token", model.unk.piece);
  return file;
}

json::object BpeModelOf(const SentencePieceModel& model) {
  json::object vocab;
  PieceIndex index(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    vocab[model.pieces[id].piece] = static_cast<int64_t>(id);
    index.Add(model.pieces[id].piece, static_cast<TokenId>(id));
  }
  json::array merges;
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    const std::string_view piece = entry.piece;
    for (size_t cut = CharacterSize(piece[0]); cut < piece.size();
         cut += CharacterSize(piece[cut])) {
      if (index.Find(piece.substr(0, cut)) && index.Find(piece.substr(cut))) {
        merges.push_back(json::array{piece.substr(0, cut), piece.substr(cut)});
      }
    }
  }
  return {{"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
}

}  // namespace espalier
