#include "text/chat/tool_call_format.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace espalier {
namespace {

struct Format {
  ToolCallFormat format;
  std::string_view name;
  std::span<const std::string_view> marks;
};

constexpr std::string_view kHermesMarks[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kLlama3Marks[] = {"<|python_tag|>"};
constexpr std::string_view kMistralMarks[] = {"[TOOL_CALLS]", "[CALL_ID]",
                                              "[ARGS]"};
constexpr Format kFormats[] = {
    {ToolCallFormat::kNone, "none", {}},
    {ToolCallFormat::kHermes, "hermes", kHermesMarks},
    {ToolCallFormat::kLlama3Json, "llama3_json", kLlama3Marks},
    {ToolCallFormat::kMistral, "mistral", kMistralMarks},
};

// Marks of formats that put no JSON between the marks of Hermes.
constexpr std::string_view kNotHermes[] = {"<function=", "<arg_key>"};

const Format& EntryOf(ToolCallFormat format) {
  return *std::ranges::find(kFormats, format, &Format::format);
}

bool HasSpecial(const Tokenizer& tokenizer, std::string_view name) {
  const std::optional<TokenId> token = tokenizer.PieceToId(name);
  return token.has_value() && tokenizer.is_special(*token);
}

}  // namespace

std::optional<ToolCallFormat> ToolCallFormatNamed(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  if (found == std::end(kFormats)) return std::nullopt;
  return found->format;
}

std::string_view NameOf(ToolCallFormat format) { return EntryOf(format).name; }

ToolCallFormat ToolCallFormatOf(std::string_view source,
                                const Tokenizer& tokenizer) {
  const auto has = [&](std::string_view mark) {
    return source.find(mark) != source.npos;
  };
  // A template without tools defines no format of their calls.
  if (!has("tools")) return ToolCallFormat::kNone;
  if (has(kMistralMarks[0])) return ToolCallFormat::kMistral;
  if (has(kHermesMarks[0])) {
    return std::ranges::any_of(kNotHermes, has) ? ToolCallFormat::kNone
                                                : ToolCallFormat::kHermes;
  }
  const bool is_llama =
      has(kLlama3Marks[0]) || HasSpecial(tokenizer, kLlama3Marks[0]);
  return is_llama ? ToolCallFormat::kLlama3Json : ToolCallFormat::kNone;
}

std::vector<ToolCallMark> SpecialMarksOf(ToolCallFormat format,
                                         const Tokenizer& tokenizer) {
  std::vector<ToolCallMark> marks = SpecialMarksOf(tokenizer);
  std::erase_if(marks, [&](const ToolCallMark& mark) {
    const auto& of_format = EntryOf(format).marks;
    return std::ranges::find(of_format, mark.spelling) == of_format.end();
  });
  return marks;
}

std::vector<ToolCallMark> SpecialMarksOf(const Tokenizer& tokenizer) {
  std::vector<ToolCallMark> marks;
  uint8_t next_byte = 0xFF;
  for (const Format& format : kFormats) {
    for (const std::string_view mark : format.marks) {
      const auto byte = static_cast<char>(next_byte--);
      if (!HasSpecial(tokenizer, mark)) continue;
      marks.push_back({*tokenizer.PieceToId(mark), mark, byte});
    }
  }
  return marks;
}

}  // namespace espalier
