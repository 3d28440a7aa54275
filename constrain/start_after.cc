#include "constrain/start_after.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/byte_nfa.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

// A regular expression of the text alone.
std::string Escaped(std::string_view text) {
  constexpr std::string_view kSyntax = "^$\\.*+?()[]{}|/";
  std::string pattern;
  for (const char c : text) {
    if (kSyntax.find(c) != kSyntax.npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// A byte that no text has ends any text.
absl::Status AddTextUpToByte(char byte, ByteNfa::State start,
                             ByteNfa::State end, CompileBudget* budget,
                             ByteNfa* nfa) {
  ASSIGN_OR_RETURN(const ByteAutomaton any,
                   CompileRegex("[\\s\\S]*", RegexMatching::kWhole, budget));
  ASSIGN_OR_RETURN(const ByteNfa::State before, nfa->AddState());
  RETURN_IF_ERROR(AddAutomaton(AutomatonRanges(any), start, before, nfa));
  const auto value = static_cast<uint8_t>(byte);
  return nfa->AddBytes(before, value, value, end);
}

// Nothing follows the first marker: the texts that end in one, without the
// edges behind it.
absl::Status AddTextUpToText(std::string_view marker, ByteNfa::State start,
                             ByteNfa::State end, CompileBudget* budget,
                             ByteNfa* nfa) {
  ASSIGN_OR_RETURN(const ByteAutomaton with_marker,
                   CompileRegex("[\\s\\S]*" + Escaped(marker),
                                RegexMatching::kWhole, budget));
  AutomatonRanges up_to(with_marker);
  std::erase_if(up_to.edges, [&](const AutomatonRanges::Edge& edge) {
    return with_marker.accepts(edge.from);
  });
  return AddAutomaton(up_to, start, end, nfa);
}

}  // namespace

absl::StatusOr<ByteAutomaton> StartAfter(std::string_view marker,
                                         const ByteAutomaton& language,
                                         CompileBudget* budget) {
  constexpr int kMaxLineEnds = 2;
  const bool is_byte = marker.size() == 1 && (marker[0] & 0x80) != 0;
  ByteNfa nfa(budget);
  ASSIGN_OR_RETURN(const ByteNfa::State start, nfa.AddState());
  ASSIGN_OR_RETURN(const ByteNfa::State end, nfa.AddState());
  ASSIGN_OR_RETURN(ByteNfa::State begun, nfa.AddState());
  RETURN_IF_ERROR(is_byte
                      ? AddTextUpToByte(marker[0], start, begun, budget, &nfa)
                      : AddTextUpToText(marker, start, begun, budget, &nfa));
  const AutomatonRanges texts(language);
  ASSIGN_OR_RETURN(const ByteNfa::State text, nfa.AddState());
  for (int i = 0; i < kMaxLineEnds; ++i) {
    RETURN_IF_ERROR(nfa.AddEmpty(begun, text));
    ASSIGN_OR_RETURN(const ByteNfa::State next, nfa.AddState());
    RETURN_IF_ERROR(nfa.AddBytes(begun, '\n', '\n', next));
    begun = next;
  }
  RETURN_IF_ERROR(nfa.AddEmpty(begun, text));
  RETURN_IF_ERROR(AddAutomaton(texts, text, end, &nfa));
  return std::move(nfa).Build(start, end);
}

absl::StatusOr<GrammarLanguage> StartAfter(std::string_view marker,
                                           const GrammarLanguage& language,
                                           CompileBudget* budget) {
  if (const auto* const plain = std::get_if<ByteAutomaton>(&language)) {
    return StartAfter(marker, *plain, budget);
  }
  ASSIGN_OR_RETURN(const ByteAutomaton empty,
                   CompileRegex("", RegexMatching::kWhole, budget));
  ASSIGN_OR_RETURN(const ByteAutomaton before,
                   StartAfter(marker, empty, budget));
  return std::get<PushdownAutomaton>(language).After(before, budget);
}

}  // namespace espalier
