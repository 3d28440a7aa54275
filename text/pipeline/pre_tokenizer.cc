#include "text/pipeline/pre_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "text/pipeline/byte_level.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/metaspace.h"
#include "text/pipeline/sequence_steps.h"
#include "text/pipeline/split_behavior.h"
#include "text/pipeline/text_pattern.h"
#include "text/pipeline/unicode.h"
#include "text/regex/regex.h"

namespace espalier {
namespace {

using PrePieces = PreTokenizer::Pieces;
using PieceSpan = PreTokenizer::Span;

// GPT-2's.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";

// "Whitespace": the classes of Rust's regex crate, in PCRE2's syntax.
constexpr char kWordPattern[] =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\x09-\x0d\x{85}\p{Z}]+)";

// Splits every piece at the matches that for_each_match(text, on_match) finds.
template <typename ForEachMatch>
absl::Status SplitAll(SplitBehavior behavior, bool is_inverted,
                      const ForEachMatch& for_each_match, PrePieces* pieces) {
  std::vector<PieceSpan>& split = pieces->scratch;
  split.clear();
  SpanSplitter splitter(behavior, is_inverted, &split);
  for (const PieceSpan& span : pieces->spans) {
    splitter.Begin(span.begin);
    RETURN_IF_ERROR(for_each_match(
        pieces->text.substr(span.begin, span.end - span.begin),
        [&](const Regex::Match& match) {
          splitter.AddMatch(span.begin + static_cast<uint32_t>(match.begin),
                            span.begin + static_cast<uint32_t>(match.end));
        }));
    splitter.End(span.end);
  }
  std::swap(split, pieces->spans);
  return absl::OkStatus();
}

// Splits at every character for which is_match(character) is true.
template <typename IsMatch>
absl::Status SplitAtCharacters(SplitBehavior behavior, const IsMatch& is_match,
                               PrePieces* pieces) {
  return SplitAll(
      behavior, false,
      [&](std::string_view text, const auto& on_match) {
        for (std::string_view rest = text; !rest.empty();) {
          const size_t begin = text.size() - rest.size();
          if (!is_match(TakeCharacter(&rest))) continue;
          on_match(Regex::Match{begin, text.size() - rest.size()});
        }
        return absl::OkStatus();
      },
      pieces);
}

// Puts what rewrite(piece, is_first, &out) appends in the place of each piece.
// Of what would be too large only the beginning is made: too much as well.
template <typename Rewrite>
void RewriteAll(const Rewrite& rewrite, PrePieces* pieces) {
  std::string out;
  out.reserve(pieces->text.size());
  for (PieceSpan& span : pieces->spans) {
    if (out.size() > pieces->max_bytes) break;
    const auto begin = static_cast<uint32_t>(out.size());
    const bool is_first = pieces->is_beginning && span.begin == 0;
    rewrite(pieces->text.substr(span.begin, span.end - span.begin), is_first,
            &out);
    span = {begin, static_cast<uint32_t>(out.size())};
  }
  pieces->rewritten = std::move(out);
  pieces->text = pieces->rewritten;
}

absl::Status ToBytes(PrePieces* pieces) {
  RewriteAll([](std::string_view piece, bool,
                std::string* out) { *out += *FromByteAlphabet(piece); },
             pieces);
  return absl::OkStatus();
}

}  // namespace

// Adds the steps of "pre_tokenizer", those of sequences in their place.
class PreTokenizerReader {
 public:
  absl::Status Add(const json::value& value, const std::string& place) {
    ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, place));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    place_ = place;
    using Method = absl::Status (PreTokenizerReader::*)(const JsonFields&);
    constexpr std::pair<std::string_view, Method> kMethods[] = {
        {"Sequence", &PreTokenizerReader::AddSequence},
        {"ByteLevel", &PreTokenizerReader::AddByteLevel},
        {"Split", &PreTokenizerReader::AddSplit},
        {"Metaspace", &PreTokenizerReader::AddMetaspace},
        {"Digits", &PreTokenizerReader::AddDigits},
        {"Punctuation", &PreTokenizerReader::AddPunctuation},
        {"Whitespace", &PreTokenizerReader::AddWhitespace},
        {"WhitespaceSplit", &PreTokenizerReader::AddWhitespaceSplit}};
    for (const auto& [name, method] : kMethods) {
      if (type == name) return (this->*method)(fields);
    }
    return fields.Wrong("type", "a pre-tokenizer that is supported");
  }

  PreTokenizer Take() {
    std::vector<PreTokenizer::Step>& steps = result_.steps_;
    // If no step follows, the bytes need not be spelt.
    if (spells_bytes_ && *spells_bytes_ + 1 == steps.size()) {
      steps.pop_back();
    } else if (spells_bytes_) {
      steps.push_back({steps[*spells_bytes_].place, ToBytes});
    }
    return std::move(result_);
  }

 private:
  absl::Status AddStep(std::function<absl::Status(PrePieces*)> run) {
    result_.steps_.push_back({place_, std::move(run)});
    return absl::OkStatus();
  }

  absl::Status AddRegex(Regex regex, const std::string& place,
                        SplitBehavior behavior, bool is_inverted) {
    return AddStep([shared = std::make_shared<const Regex>(std::move(regex)),
                    place, behavior, is_inverted](PrePieces* pieces) {
      const absl::Status status = SplitAll(
          behavior, is_inverted,
          [&](std::string_view text, const auto& on_match) {
            return shared->ForEachMatch(text, pieces->budget, on_match);
          },
          pieces);
      return status.ok() ? status : Annotate(status, place);
    });
  }

  absl::Status AddSequence(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "pretokenizers"}));
    ASSIGN_OR_RETURN(const json::array* list,
                     ReadSequenceSteps(fields, "pretokenizers", &num_steps_));
    for (size_t i = 0; i < list->size(); ++i) {
      RETURN_IF_ERROR(
          Add((*list)[i], ItemPlace(fields.Place("pretokenizers"), i)));
    }
    return absl::OkStatus();
  }

  absl::Status AddByteLevel(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown(
        {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    if (spells_bytes_) return fields.Wrong("type", "something else, once");
    ASSIGN_OR_RETURN(const bool adds_space, fields.Bool("add_prefix_space"));
    ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
    if (adds_space) {
      RETURN_IF_ERROR(AddStep([](PrePieces* pieces) {
        RewriteAll(
            [](std::string_view piece, bool, std::string* out) {
              if (!piece.starts_with(' ')) *out += ' ';
              *out += piece;
            },
            pieces);
        return absl::OkStatus();
      }));
    }
    if (use_regex) {
      ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kByteLevelPattern));
      RETURN_IF_ERROR(AddRegex(std::move(regex), fields.place(),
                               SplitBehavior::kIsolated, false));
    }
    spells_bytes_ = result_.steps_.size();
    result_.is_byte_level_ = true;
    return AddStep([](PrePieces* pieces) {
      RewriteAll([](std::string_view piece, bool,
                    std::string* out) { *out += ToByteAlphabet(piece); },
                 pieces);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<SplitBehavior> ReadBehavior(const JsonFields& fields) {
    ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
    if (const auto behavior = SplitBehaviorOf(name)) return *behavior;
    return fields.Wrong("behavior",
                        "Removed, Isolated, MergedWithPrevious, "
                        "MergedWithNext or Contiguous");
  }

  absl::Status AddSplit(const JsonFields& fields) {
    RETURN_IF_ERROR(
        fields.CheckKnown({"type", "pattern", "behavior", "invert"}));
    ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Read(fields));
    ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(fields));
    ASSIGN_OR_RETURN(const bool is_inverted, fields.Bool("invert"));
    return AddStep([pattern, behavior, is_inverted](PrePieces* pieces) {
      return SplitAll(
          behavior, is_inverted,
          [&](std::string_view text, const auto& on_match) {
            return pattern.ForEachMatch(text, pieces->budget, on_match);
          },
          pieces);
    });
  }

  absl::Status AddMetaspace(const JsonFields& fields) {
    ASSIGN_OR_RETURN(const Metaspace metaspace, Metaspace::Read(fields));
    if (spells_bytes_) return fields.Wrong("type", "none after ByteLevel");
    RETURN_IF_ERROR(AddStep([metaspace](PrePieces* pieces) {
      RewriteAll(
          [&](std::string_view piece, bool is_first, std::string* out) {
            metaspace.AppendReplaced(piece, is_first, out);
          },
          pieces);
      return absl::OkStatus();
    }));
    if (!metaspace.splits) return absl::OkStatus();
    std::string_view sign = metaspace.sign;
    return AddStep([character = TakeCharacter(&sign)](PrePieces* pieces) {
      return SplitAtCharacters(
          SplitBehavior::kMergedWithNext,
          [character](char32_t c) { return c == character; }, pieces);
    });
  }

  absl::Status AddDigits(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool each, fields.Bool("individual_digits"));
    const SplitBehavior behavior =
        each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return AddStep([behavior](PrePieces* pieces) {
      return SplitAtCharacters(behavior, IsNumeric, pieces);
    });
  }

  absl::Status AddPunctuation(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "behavior"}));
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (fields.Find("behavior") != nullptr) {
      ASSIGN_OR_RETURN(behavior, ReadBehavior(fields));
    }
    return AddStep([behavior](PrePieces* pieces) {
      return SplitAtCharacters(behavior, IsPunctuation, pieces);
    });
  }

  absl::Status AddWhitespace(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    ASSIGN_OR_RETURN(Regex regex, Regex::CompilePcre2(kWordPattern));
    return AddRegex(std::move(regex), fields.place(), SplitBehavior::kRemoved,
                    true);
  }

  absl::Status AddWhitespaceSplit(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    return AddStep([](PrePieces* pieces) {
      return SplitAtCharacters(SplitBehavior::kRemoved, IsWhitespace, pieces);
    });
  }

  PreTokenizer result_;
  size_t num_steps_ = 0;  // nested sequences included
  // Place of the current step in the file.
  std::string place_;
  std::optional<size_t> spells_bytes_;  // index of the step
};

absl::StatusOr<PreTokenizer> PreTokenizer::Read(const json::value& value,
                                                const std::string& place) {
  PreTokenizerReader reader;
  if (!value.is_null()) RETURN_IF_ERROR(reader.Add(value, place));
  return reader.Take();
}

absl::Status PreTokenizer::Apply(PrePieces* pieces) const {
  pieces->spans.clear();
  if (pieces->text.empty()) return absl::OkStatus();
  pieces->spans.push_back({0, static_cast<uint32_t>(pieces->text.size())});
  const size_t original_bytes = pieces->text.size();
  pieces->max_bytes = std::min<size_t>(32 * original_bytes + 1024, INT32_MAX);
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(step.run(pieces));
    if (pieces->text.size() > pieces->max_bytes) {
      return InvalidArgument(step.place, " makes more than ", pieces->max_bytes,
                             " bytes of a text of ", original_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier
