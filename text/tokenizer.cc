#include "text/tokenizer.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/sentencepiece_check.h"

// The library puts an absl::string_view of its own, std's, beside Abseil's,
// which makes the name ambiguous. An alias leaves no trace in symbols, so here
// it goes to another namespace.
#define absl espalier_sentencepiece_absl
#include <sentencepiece_processor.h>
#undef absl

namespace espalier {
namespace {

// The models of the largest vocabularies in use stay below 10 MiB.
constexpr size_t kMaxModelBytes = size_t{64} << 20;

// What `call`, a call into the library, came to.
template <typename Call>
absl::Status RunLibrary(const Call& call) {
  try {
    const sentencepiece::util::Status status = call();
    return status.ok() ? absl::OkStatus()
                       : Internal("sentencepiece: ", status.message());
  } catch (const std::exception& error) {
    return Internal("sentencepiece: ", error.what());
  }
}

}  // namespace

Tokenizer::Tokenizer(
    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
    : processor_(std::move(processor)) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxModelBytes));
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  absl::Status status = CheckSentencePieceModel(bytes);
  if (status.ok()) {
    status =
        RunLibrary([&] { return processor->LoadFromSerializedProto(bytes); });
  }
  if (!status.ok()) {
    return InvalidArgument(path,
                           " is no SentencePiece model: ", Message(status));
  }
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(processor)));
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(
    std::string_view text) const {
  if (!IsUtf8(text)) return InvalidArgument("text to encode is not UTF-8");
  std::vector<int> ids;
  RETURN_IF_ERROR(RunLibrary([&] { return processor_->Encode(text, &ids); }));
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(
    std::span<const TokenId> tokens) const {
  const auto bad =
      std::ranges::find_if(tokens, [](TokenId token) { return token < 0; });
  if (bad != tokens.end()) {
    return InvalidArgument("token ", *bad, " at index ", bad - tokens.begin(),
                           " is negative");
  }
  std::vector<int> ids;
  std::ranges::copy_if(tokens, std::back_inserter(ids),
                       [&](TokenId token) { return token < vocab_size(); });
  std::string text;
  RETURN_IF_ERROR(RunLibrary([&] { return processor_->Decode(ids, &text); }));
  return text;
}

std::optional<TokenId> Tokenizer::PieceToId(std::string_view piece) const {
  // The library answers the unknown symbol for what it does not know.
  const TokenId id = processor_->PieceToId(piece);
  if (id < 0 || id >= vocab_size()) return std::nullopt;
  if (processor_->IdToPiece(id) != piece) return std::nullopt;
  return id;
}

int Tokenizer::vocab_size() const { return processor_->GetPieceSize(); }

absl::Status Tokenizer::CheckFits(int model_vocab_size) const {
  if (vocab_size() <= model_vocab_size) return absl::OkStatus();
  return InvalidArgument("the tokenizer has ", vocab_size(),
                         " tokens, the model's vocabulary only ",
                         model_vocab_size);
}

std::optional<TokenId> Tokenizer::bos_id() const {
  const TokenId id = processor_->bos_id();
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace espalier
