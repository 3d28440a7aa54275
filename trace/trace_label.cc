#include "trace/trace_label.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  char32_t code = 0;
  std::string_view bytes;
};

// Removes and returns the first character of `*text`.
Character Next(std::string_view* text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>((*text)[i]);
  };
  const size_t length = byte(0) < 0x80   ? 1
                        : byte(0) < 0xE0 ? 2
                        : byte(0) < 0xF0 ? 3
                                         : 4;
  char32_t code = length == 1 ? byte(0) : byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
  const Character character = {code, text->substr(0, length)};
  text->remove_prefix(length);
  return character;
}

std::string Utf8(char32_t code) {  // REQUIRES: U+0800 to U+FFFF
  return {static_cast<char>(0xE0 | code >> 12),
          static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t n>
bool IsIn(const std::array<Range, n>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

// Bidirectional controls, C1 controls, line and paragraph separators, and
// characters that XML does not allow.
constexpr std::array kUnshown = {Range{0x80, 0x9F},     Range{0x061C, 0x061C},
                                 Range{0x200E, 0x200F}, Range{0x2028, 0x202E},
                                 Range{0x2066, 0x2069}, Range{0xFFFE, 0xFFFF}};
constexpr std::array kCombining = {
    Range{0x0300, 0x036F}, Range{0x0483, 0x0489}, Range{0x0591, 0x05BD},
    Range{0x064B, 0x065F}, Range{0x093C, 0x094D}, Range{0x200B, 0x200D},
    Range{0x20D0, 0x20F0}, Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F}};
constexpr std::array kWide = {
    Range{0x1100, 0x115F}, Range{0x2E80, 0xA4CF},   Range{0xAC00, 0xD7A3},
    Range{0xF900, 0xFAFF}, Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},
    Range{0xFFE0, 0xFFE6}, Range{0x1F300, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

std::string Visible(const Character& character, std::string_view space) {
  constexpr char32_t kSentencePieceSpace = 0x2581;
  const char32_t code = character.code;
  if (code == ' ' || code == kSentencePieceSpace) return std::string(space);
  if (code == '\n') return "↵";
  if (code < ' ') return Utf8(0x2400 + code);
  if (code == 0x7F) return "␡";
  if (IsIn(kUnshown, code)) return std::string(kReplacement);
  return std::string(character.bytes);
}

int ColumnsOf(const Character& character) {
  if (IsIn(kCombining, character.code)) return 0;
  return IsIn(kWide, character.code) ? 2 : 1;
}

std::string Visible(std::string_view text, std::string_view space) {
  std::string visible;
  while (!text.empty()) visible += Visible(Next(&text), space);
  return visible;
}

// Returns the decoder prompt's text, converted by `shown`, or "#31 #7" if that
// is not known; "" without a decoder prompt.
std::string DecoderPrompt(const TraceTree& tree,
                          std::string (*shown)(std::string_view)) {
  const json::object& params = tree.request.params;
  const json::value* const text = params.if_contains("decoder_prompt");
  if (text != nullptr && text->is_string() && !text->as_string().empty()) {
    return shown(std::string(text->as_string()));
  }
  const json::value* const ids = params.if_contains("decoder_prompt_tokens");
  if (ids == nullptr || !ids->is_array()) return "";
  std::string label;
  for (const json::value& id : ids->as_array()) {
    label += Concat(label.empty() ? "#" : " #", Readable(Shown(&id)));
  }
  return label;
}

}  // namespace

std::string Visible(std::string_view text) { return Visible(text, "·"); }

std::string Readable(std::string_view text) {
  const std::string readable = Visible(text, " ");
  const size_t begin = readable.find_first_not_of(' ');
  return begin == std::string::npos ? "" : readable.substr(begin);
}

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '/':
        escaped += "&#47;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

int NumColumns(std::string_view text) {
  int columns = 0;
  while (!text.empty()) columns += ColumnsOf(Next(&text));
  return columns;
}

std::string Shortened(std::string_view text, int max_columns) {
  if (NumColumns(text) <= max_columns) return std::string(text);
  std::string shortened;
  int columns = 0;
  while (true) {
    const Character character = Next(&text);
    columns += ColumnsOf(character);
    if (columns > max_columns - 1) return shortened + "…";
    shortened += character.bytes;
  }
}

std::string TokenLabel(const TraceCandidate& candidate) {
  if (candidate.text.empty()) return Concat("#", candidate.token);
  return Visible(candidate.text);
}

double Probability(const TraceCandidate& candidate) {
  return std::min(1.0, std::exp(static_cast<double>(candidate.log_prob)));
}

std::string ScoreLabel(float score) { return absl::StrFormat("%.4f", score); }

std::string NumLegalLabel(const TraceLegalRow& row) {
  return Concat(row.num_legal, " legal");
}

std::string LegalLabel(const TraceLegalRow& row) {
  std::string label = Concat(Pluralize(row.num_legal, "legal token"),
                             ", state ", row.state, ", room ", row.room);
  if (row.legal_log_mass) {
    const double mass = std::exp(static_cast<double>(*row.legal_log_mass));
    label += absl::StrFormat(", mass %.3g", mass);
  }
  return label;
}

std::string PathText(const TraceTree& tree, int node) {
  std::string text;
  for (const int id : tree.Path(node)) {
    const TraceCandidate& candidate = tree.nodes[id].candidate;
    const bool ends = candidate.fate == CandidateFate::kFinished;
    if (ends && candidate.why == "eos") continue;
    text +=
        candidate.text.empty() ? TokenLabel(candidate) + " " : candidate.text;
  }
  return Readable(text);
}

std::string DecoderPromptLabel(const TraceTree& tree) {
  return DecoderPrompt(tree, Visible);
}

std::string Title(const TraceTree& tree) {
  std::string title = Concat("Request ", tree.request.request);
  if (tree.request.caller_id) {
    title += " (id " + Readable(*tree.request.caller_id) + ")";
  }
  if (!tree.request.prompt.empty()) {
    title += ": " + Readable(tree.request.prompt);
  }
  const std::string begun = DecoderPrompt(tree, Readable);
  return begun.empty() ? title : title + " → " + begun;
}

std::string WhyNoResult(const TraceTree& tree) {
  if (!tree.end) return "the trace stops before its end";
  if (!tree.end->error) return "";
  return Concat(CodeName(tree.end->error->code()), ": ",
                Readable(Message(*tree.end->error)));
}

std::string PreemptionLabel(const TracePreemption& preemption) {
  const std::string preempted =
      Concat("preempted before step ", preemption.preempted.step, ", gave ",
             Pluralize(preemption.preempted.num_pages, "page"), " back; ");
  if (!preemption.resumed) return preempted + "did not resume";
  return Concat(preempted, "resumed with ",
                Pluralize(preemption.resumed->num_cached_tokens, "token"),
                " cached, ",
                preemption.resumed->num_loaded_tokens > 0
                    ? Concat(preemption.resumed->num_loaded_tokens, " loaded, ")
                    : "",
                preemption.resumed->num_fed_tokens, " fed again");
}

std::string Summary(const TraceTree& tree) {
  int counts[3] = {};
  for (const TraceNode& node : tree.nodes) {
    ++counts[static_cast<int>(node.candidate.fate)];
  }
  return Concat(Readable(tree.request.strategy), ", ",
                Pluralize(tree.request.prompt_tokens.size(), "prompt token"),
                ", ", Pluralize(tree.num_steps(), "step"), ", ",
                Pluralize(tree.nodes.size(), "candidate"), ": ", counts[0],
                " kept, ", counts[1], " pruned, ", counts[2], " finished");
}

}  // namespace espalier
