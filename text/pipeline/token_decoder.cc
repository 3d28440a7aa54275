#include "text/pipeline/token_decoder.h"

#include <functional>
#include <utility>

#include "base/status.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/byte_level.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/metaspace.h"
#include "text/pipeline/sequence_steps.h"
#include "text/pipeline/text_pattern.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

// `text` without up to `start` of `content` in front and `stop` at its end.
std::string Stripped(std::string_view text, std::string_view content,
                     int64_t start, int64_t stop) {
  for (; start > 0 && text.starts_with(content); --start) {
    text.remove_prefix(content.size());
  }
  for (; stop > 0 && text.ends_with(content); --stop) {
    text.remove_suffix(content.size());
  }
  return std::string(text);
}

}  // namespace

// Adds the steps of "decoder", those of sequences in their place.
class TokenDecoderReader {
 public:
  absl::Status Add(const json::value& value, const std::string& place) {
    ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, place));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    place_ = place;
    using Method = absl::Status (TokenDecoderReader::*)(const JsonFields&);
    constexpr std::pair<std::string_view, Method> kMethods[] = {
        {"Sequence", &TokenDecoderReader::AddSequence},
        {"ByteLevel", &TokenDecoderReader::AddByteLevel},
        {"ByteFallback", &TokenDecoderReader::AddByteFallback},
        {"Metaspace", &TokenDecoderReader::AddMetaspace},
        {"Replace", &TokenDecoderReader::AddReplace},
        {"Strip", &TokenDecoderReader::AddStrip},
        {"Fuse", &TokenDecoderReader::AddFuse}};
    for (const auto& [name, method] : kMethods) {
      if (type == name) return (this->*method)(fields);
    }
    return fields.Wrong("type", "a decoder that is supported");
  }

  // Tokens that no step joins.
  void AddSpaces(const std::string& place) {
    decoder_.steps_.push_back({place, [](Piece* piece) {
                                 if (!piece->is_first) {
                                   piece->text.insert(0, " ");
                                 }
                                 return absl::OkStatus();
                               }});
  }

  TokenDecoder Take() { return std::move(decoder_); }

 private:
  using Piece = TokenDecoder::Piece;

  absl::Status AddStep(std::function<absl::Status(Piece*)> run) {
    decoder_.steps_.push_back({place_, std::move(run)});
    return absl::OkStatus();
  }

  // Once tokens are joined, or bytes have become characters, what a step does
  // to one of them depends on the others.
  absl::Status CheckTokensAreApart(const JsonFields& fields) const {
    if (!is_joined_ && !has_bytes_) return absl::OkStatus();
    return fields.Wrong("type", "in front of what joins tokens or bytes");
  }

  absl::Status AddSequence(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "decoders"}));
    ASSIGN_OR_RETURN(const json::array* list,
                     ReadSequenceSteps(fields, "decoders", &num_steps_));
    for (size_t i = 0; i < list->size(); ++i) {
      RETURN_IF_ERROR(Add((*list)[i], ItemPlace(fields.Place("decoders"), i)));
    }
    return absl::OkStatus();
  }

  absl::Status AddByteLevel(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown(
        {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    RETURN_IF_ERROR(CheckTokensAreApart(fields));
    is_joined_ = has_bytes_ = true;
    decoder_.broken_ = BrokenCharacters::kEachPart;
    return AddStep([](Piece* piece) {
      // A token that is not of the alphabet is its own bytes.
      if (auto bytes = FromByteAlphabet(piece->text)) {
        piece->text = *std::move(bytes);
      }
      piece->is_bytes = true;
      return absl::OkStatus();
    });
  }

  absl::Status AddByteFallback(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    RETURN_IF_ERROR(CheckTokensAreApart(fields));
    has_bytes_ = true;
    return AddStep([](Piece* piece) {
      const auto byte = ByteOfFallbackPiece(piece->text);
      if (!byte) return absl::OkStatus();
      piece->text = static_cast<char>(*byte);
      piece->is_bytes = true;
      return absl::OkStatus();
    });
  }

  absl::Status AddFuse(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    is_joined_ = true;
    return absl::OkStatus();
  }

  absl::Status AddMetaspace(const JsonFields& fields) {
    RETURN_IF_ERROR(CheckTokensAreApart(fields));
    ASSIGN_OR_RETURN(const Metaspace metaspace, Metaspace::Read(fields));
    return AddStep([metaspace](Piece* piece) {
      const bool drops_signs =
          piece->is_first && metaspace.scheme != PrependScheme::kNever;
      std::string text;
      for (std::string_view rest = piece->text; !rest.empty();) {
        const bool is_sign = rest.starts_with(metaspace.sign);
        const size_t size = CharacterSize(rest.front());
        if (!is_sign) text += rest.substr(0, size);
        if (is_sign && !drops_signs) text += ' ';
        rest.remove_prefix(size);
      }
      piece->text = std::move(text);
      return absl::OkStatus();
    });
  }

  absl::Status AddReplace(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "pattern", "content"}));
    RETURN_IF_ERROR(CheckTokensAreApart(fields));
    ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Read(fields));
    ASSIGN_OR_RETURN(const std::string content, fields.String("content"));
    return AddStep([pattern, content](Piece* piece) {
      std::string replaced;
      size_t copied = 0;
      RETURN_IF_ERROR(pattern.ForEachMatch(
          piece->text, piece->budget, [&](const Regex::Match& match) {
            if (replaced.size() > TokenDecoder::kMaxBytes) return;
            replaced.append(piece->text, copied, match.begin - copied);
            replaced += content;
            copied = match.end;
          }));
      replaced.append(piece->text, copied);
      piece->text = std::move(replaced);
      return absl::OkStatus();
    });
  }

  absl::Status AddStrip(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "content", "start", "stop"}));
    ASSIGN_OR_RETURN(const std::string content, fields.String("content"));
    if (content.empty() || CharacterSize(content.front()) != content.size()) {
      return fields.Wrong("content", "one character");
    }
    ASSIGN_OR_RETURN(const int64_t start, fields.Integer("start"));
    ASSIGN_OR_RETURN(const int64_t stop, fields.Integer("stop"));
    const bool is_joined = is_joined_;
    if (!is_joined) RETURN_IF_ERROR(CheckTokensAreApart(fields));
    if (start < 0 || (is_joined && start > 1)) {
      return fields.Wrong("start", is_joined ? "0 or 1" : "at least 0");
    }
    if (stop < 0 || (is_joined && stop > 0)) {
      return fields.Wrong("stop", is_joined ? "0" : "at least 0");
    }
    return AddStep([content, start, stop, is_joined](Piece* piece) {
      if (!is_joined || piece->is_first) {
        piece->text = Stripped(piece->text, content, start, stop);
      }
      return absl::OkStatus();
    });
  }

  TokenDecoder decoder_;
  size_t num_steps_ = 0;  // nested sequences included
  // Place of the current step in the file.
  std::string place_;
  bool has_bytes_ = false;
  bool is_joined_ = false;
};

absl::StatusOr<TokenDecoder> TokenDecoder::Read(const json::value& value,
                                                const std::string& place) {
  TokenDecoderReader reader;
  if (value.is_null()) {
    reader.AddSpaces(place);
  } else {
    RETURN_IF_ERROR(reader.Add(value, place));
  }
  return reader.Take();
}

absl::StatusOr<TokenDecoder::Spelling> TokenDecoder::Spell(
    std::string_view text, bool is_first, RegexBudget* budget) const {
  Piece piece{std::string(text), false, is_first, budget};
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(step.run(&piece));
    if (piece.text.size() > kMaxBytes) {
      return InvalidArgument(step.place, " must spell tokens in at most ",
                             kMaxBytes, " bytes, got more for ",
                             ShownInQuotes(text));
    }
  }
  // Whole characters join with nothing: they are the same as text.
  const bool is_text = !piece.is_bytes || IsUtf8(piece.text);
  // A byte of ASCII as "<0x41>" parts bytes as any character does.
  return Spelling{is_text ? SpellingKind::kText : SpellingKind::kBytes,
                  std::move(piece.text)};
}

}  // namespace espalier
