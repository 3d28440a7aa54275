#include "text/pipeline/normalizer.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "text/pipeline/base64.h"
#include "text/pipeline/charsmap.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/sequence_steps.h"
#include "text/pipeline/text_pattern.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

std::string_view BeginningOf(const Normalizer::Text& text) {
  return std::string_view(text.text).substr(0, text.beginning);
}

// A normal form may join the beginning with what follows it ("e" with an
// accent) or put marks in another order, so that its size ends inside a
// character. That character counts as of the beginning.
void EndBeginningWithCharacter(Normalizer::Text* text) {
  const auto is_inside = [&](size_t at) {
    return at < text->text.size() &&
           (static_cast<uint8_t>(text->text[at]) & 0xC0) == 0x80;
  };
  text->beginning = std::min(text->beginning, text->text.size());
  while (is_inside(text->beginning)) ++text->beginning;
}

}  // namespace

Normalizer::Text::Text(std::string_view original, RegexBudget* regex_budget)
    : text(original),
      beginning(text.empty() ? 0 : CharacterSize(text.front())),
      max_bytes(std::min<size_t>(32 * text.size() + 1024, INT32_MAX)),
      budget(regex_budget) {}

// Adds the steps of "normalizer", those of sequences in their place.
class NormalizerReader {
 public:
  absl::Status Add(const json::value& value, const std::string& place) {
    ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, place));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    place_ = place;
    using Method = absl::Status (NormalizerReader::*)(const JsonFields&);
    constexpr std::pair<std::string_view, Method> kMethods[] = {
        {"Sequence", &NormalizerReader::AddSequence},
        {"Prepend", &NormalizerReader::AddPrepend},
        {"Replace", &NormalizerReader::AddReplace},
        {"Strip", &NormalizerReader::AddStrip},
        {"StripAccents", &NormalizerReader::AddStripAccents},
        {"Lowercase", &NormalizerReader::AddLowercase},
        {"Nmt", &NormalizerReader::AddNmt},
        {"BertNormalizer", &NormalizerReader::AddBert},
        {"Precompiled", &NormalizerReader::AddPrecompiled}};
    for (const auto& [name, method] : kMethods) {
      if (type == name) return (this->*method)(fields);
    }
    if (const auto form = FormOf(type)) return AddForm(fields, *form);
    return fields.Wrong("type", "a normalizer that is supported");
  }

  Normalizer Take() { return std::move(normalizer_); }

 private:
  using Text = Normalizer::Text;

  static std::optional<NormalizationForm> FormOf(std::string_view type) {
    if (type == "NFC") return NormalizationForm::kNfc;
    if (type == "NFD") return NormalizationForm::kNfd;
    if (type == "NFKC") return NormalizationForm::kNfkc;
    if (type == "NFKD") return NormalizationForm::kNfkd;
    return std::nullopt;
  }

  absl::Status AddStep(std::function<absl::Status(Text*)> run) {
    normalizer_.steps_.push_back({place_, std::move(run)});
    return absl::OkStatus();
  }

  absl::Status AddSequence(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "normalizers"}));
    ASSIGN_OR_RETURN(const json::array* list,
                     ReadSequenceSteps(fields, "normalizers", &num_steps_));
    for (size_t i = 0; i < list->size(); ++i) {
      RETURN_IF_ERROR(
          Add((*list)[i], ItemPlace(fields.Place("normalizers"), i)));
    }
    return absl::OkStatus();
  }

  absl::Status AddForm(const JsonFields& fields, NormalizationForm form) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    return AddStep([form](Text* text) {
      SetForm(form, text);
      return absl::OkStatus();
    });
  }

  static void SetForm(NormalizationForm form, Text* text) {
    text->beginning = ToForm(BeginningOf(*text), form).size();
    text->text = ToForm(text->text, form);
  }

  absl::Status AddLowercase(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    return AddStep([](Text* text) {
      SetLowercase(text);
      return absl::OkStatus();
    });
  }

  static void SetLowercase(Text* text) {
    text->beginning = ToLowercase(BeginningOf(*text)).size();
    text->text = ToLowercase(text->text);
  }

  absl::Status AddPrepend(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "prepend"}));
    ASSIGN_OR_RETURN(const std::string prefix, fields.String("prepend"));
    return AddStep([prefix](Text* text) {
      if (text->text.empty()) return absl::OkStatus();
      text->text.insert(0, prefix);
      // The prefix gets the offset of the character after it.
      if (text->beginning > 0) text->beginning += prefix.size();
      return absl::OkStatus();
    });
  }

  absl::Status AddReplace(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Read(fields));
    ASSIGN_OR_RETURN(const std::string content, fields.String("content"));
    return AddStep([pattern, content](Text* text) {
      return Replace(pattern, content, text);
    });
  }

  // Builds only the beginning of a text that exceeds the limit, which is enough
  // for the caller to refuse it. A replacement counts as part of the beginning
  // if the last character of its match does, because the library gives it that
  // character's offset.
  static absl::Status Replace(const TextPattern& pattern,
                              const std::string& content, Text* text) {
    // A pattern that may match nothing finds nothing here, as in the library.
    if (text->text.empty()) return absl::OkStatus();
    std::string replaced;
    size_t copied = 0;
    size_t beginning = text->beginning;  // length in `replaced`
    RETURN_IF_ERROR(pattern.ForEachMatch(
        text->text, text->budget, [&](const Regex::Match& match) {
          if (replaced.size() > text->max_bytes) return;
          replaced.append(text->text, copied, match.begin - copied);
          if (match.begin < text->beginning) beginning = replaced.size();
          replaced += content;
          copied = match.end;
          if (match.end <= text->beginning) {
            beginning = replaced.size() + (text->beginning - match.end);
          }
        }));
    replaced.append(text->text, copied);
    text->text = std::move(replaced);
    text->beginning = beginning;
    return absl::OkStatus();
  }

  absl::Status AddStrip(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "strip_left", "strip_right"}));
    ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left"));
    ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right"));
    return AddStep([left, right](Text* text) {
      Strip(left, right, text);
      return absl::OkStatus();
    });
  }

  static void Strip(bool left, bool right, Text* text) {
    size_t begin = 0, end = 0;  // range without outer white space
    bool is_blank = true;
    for (std::string_view rest = text->text; !rest.empty();) {
      const size_t at = text->text.size() - rest.size();
      if (IsWhitespace(TakeCharacter(&rest))) continue;
      if (is_blank) begin = at;
      is_blank = false;
      end = text->text.size() - rest.size();
    }
    if (is_blank) begin = end = text->text.size();
    if (!left) begin = 0;
    // With both sides a blank text is gone; with the right one as well.
    if (is_blank && right) begin = end = 0;
    if (!right) end = text->text.size();
    text->beginning -= std::min(text->beginning, begin);
    text->text = text->text.substr(begin, end - begin);
  }

  // Puts what rewrite(character, &out) appends in the place of each character.
  template <typename Rewrite>
  static void RewriteCharacters(const Rewrite& rewrite, Text* text) {
    std::string rewritten;
    size_t beginning = 0;
    for (std::string_view rest = text->text; !rest.empty();) {
      if (rewritten.size() > text->max_bytes) break;
      const bool is_of_beginning =
          text->text.size() - rest.size() < text->beginning;
      rewrite(TakeCharacter(&rest), &rewritten);
      if (is_of_beginning) beginning = rewritten.size();
    }
    text->beginning = beginning;
    text->text = std::move(rewritten);
  }

  absl::Status AddStripAccents(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    return AddStep([](Text* text) {
      RewriteCharacters(
          [](char32_t character, std::string* out) {
            if (!IsMark(character)) AppendCharacter(character, out);
          },
          text);
      return absl::OkStatus();
    });
  }

  // As SentencePiece's rules of this name.
  absl::Status AddNmt(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type"}));
    return AddStep([](Text* text) {
      RewriteCharacters(
          [](char32_t character, std::string* out) {
            if (IsNmtControl(character)) return;
            AppendCharacter(IsNmtSpace(character) ? U' ' : character, out);
          },
          text);
      return absl::OkStatus();
    });
  }

  static bool IsNmtControl(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
           c == 0x7F || c == 0x8F || c == 0x9F;
  }

  static bool IsNmtSpace(char32_t c) {
    return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
           c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }

  absl::Status AddBert(const JsonFields& fields) {
    RETURN_IF_ERROR(
        fields.CheckKnown({"type", "clean_text", "handle_chinese_chars",
                           "strip_accents", "lowercase"}));
    ASSIGN_OR_RETURN(const bool cleans, fields.Bool("clean_text", true));
    ASSIGN_OR_RETURN(const bool spaces_han,
                     fields.Bool("handle_chinese_chars", true));
    ASSIGN_OR_RETURN(const bool lowers, fields.Bool("lowercase", true));
    ASSIGN_OR_RETURN(const bool strips, fields.Bool("strip_accents", lowers));
    return AddStep([=](Text* text) {
      if (cleans) RewriteCharacters(Clean, text);
      if (spaces_han) RewriteCharacters(PutBetweenSpaces, text);
      if (strips) {
        SetForm(NormalizationForm::kNfd, text);
        EndBeginningWithCharacter(text);
        RewriteCharacters(
            [](char32_t character, std::string* out) {
              if (!IsNonspacingMark(character)) AppendCharacter(character, out);
            },
            text);
      }
      if (lowers) SetLowercase(text);
      return absl::OkStatus();
    });
  }

  static void Clean(char32_t character, std::string* out) {
    if (character == '\t' || character == '\n' || character == '\r') {
      *out += ' ';
    } else if (character != 0 && character != 0xFFFD && !IsControl(character)) {
      AppendCharacter(IsWhitespace(character) ? U' ' : character, out);
    }
  }

  static void PutBetweenSpaces(char32_t character, std::string* out) {
    const bool is_han = IsBertIdeograph(character);
    if (is_han) *out += ' ';
    AppendCharacter(character, out);
    if (is_han) *out += ' ';
  }

  absl::Status AddPrecompiled(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.CheckKnown({"type", "precompiled_charsmap"}));
    ASSIGN_OR_RETURN(const std::string text,
                     fields.String("precompiled_charsmap"));
    const std::optional<std::string> map = FromBase64(text);
    if (!map) return fields.Wrong("precompiled_charsmap", "Base64");
    absl::StatusOr<Charsmap> charsmap = Charsmap::Create(*map);
    if (!charsmap.ok()) {
      return fields.WrongAs("precompiled_charsmap", charsmap.status());
    }
    return AddStep([shared = std::make_shared<const Charsmap>(
                        *std::move(charsmap))](Text* value) {
      size_t first_bytes = 0;
      value->text = shared->Apply(value->text, value->max_bytes, &first_bytes);
      if (value->beginning > 0) value->beginning = first_bytes;
      return absl::OkStatus();
    });
  }

  Normalizer normalizer_;
  size_t num_steps_ = 0;  // nested sequences included
  // Place of the current step in the file.
  std::string place_;
};

absl::StatusOr<Normalizer> Normalizer::Read(const json::value& value,
                                            const std::string& place) {
  NormalizerReader reader;
  if (!value.is_null()) RETURN_IF_ERROR(reader.Add(value, place));
  return reader.Take();
}

absl::Status Normalizer::Apply(Text* text) const {
  const size_t original_bytes = text->text.size();
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(step.run(text));
    EndBeginningWithCharacter(text);
    if (text->text.size() > text->max_bytes) {
      return InvalidArgument(step.place, " makes more than ", text->max_bytes,
                             " bytes of a text of ", original_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier
