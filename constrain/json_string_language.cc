#include "constrain/json_string_language.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/automaton_builder.h"
#include "constrain/byte_nfa.h"
#include "constrain/dfa_edges.h"
#include "constrain/pushdown_automaton.h"

namespace espalier {
namespace {

// States of well-formed UTF-8: between code points, before 1 to 3 more bytes of
// the form 10xxxxxx, and before the second byte after a first one that limits
// it.
enum Utf8State : int32_t {
  kBetween,
  kOneMore,
  kTwoMore,
  kThreeMore,
  kAfterE0,
  kAfterEd,
  kAfterF0,
  kAfterF4,
};
constexpr int32_t kNumUtf8States = 8;

// A transition for bytes from `first` to the next row's.
struct Utf8Edge {
  Utf8State from;
  uint8_t first;
  uint8_t last;
  Utf8State to;
};
constexpr std::array<Utf8Edge, 16> kUtf8Edges = {{
    {kBetween, 0x00, 0x7F, kBetween},
    {kBetween, 0xC2, 0xDF, kOneMore},
    {kBetween, 0xE0, 0xE0, kAfterE0},
    {kBetween, 0xE1, 0xEC, kTwoMore},
    {kBetween, 0xED, 0xED, kAfterEd},
    {kBetween, 0xEE, 0xEF, kTwoMore},
    {kBetween, 0xF0, 0xF0, kAfterF0},
    {kBetween, 0xF1, 0xF3, kThreeMore},
    {kBetween, 0xF4, 0xF4, kAfterF4},
    {kOneMore, 0x80, 0xBF, kBetween},
    {kTwoMore, 0x80, 0xBF, kOneMore},
    {kThreeMore, 0x80, 0xBF, kTwoMore},
    {kAfterE0, 0xA0, 0xBF, kOneMore},
    {kAfterEd, 0x80, 0x9F, kOneMore},
    {kAfterF0, 0x90, 0xBF, kTwoMore},
    {kAfterF4, 0x80, 0x8F, kTwoMore},
}};
// Bytes at which a class begins.
constexpr std::array<int, 16> kUtf8Classes = {
    0x00, 0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0,  0xE1,
    0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5, 0x100, 0x100};
constexpr int kNumUtf8Classes = 14;

constexpr std::string_view kHexDigits = "0123456789abcdef";

// Returns the letter of a short escape; 0 if the byte has none.
char EscapeLetter(uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
      return static_cast<char>(byte);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

// Returns the text of a byte within a JSON string.
std::string Escaped(uint8_t byte) {
  if (const char letter = EscapeLetter(byte); letter != 0) {
    return {'\\', letter};
  }
  if (byte >= ' ') return {static_cast<char>(byte)};
  return {'\\', 'u', '0', '0', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
}

// True for the first byte of a code point in UTF-8.
bool BeginsCodePoint(int byte) { return (byte & 0xC0) != 0x80; }

bool IsEscaped(int byte) { return byte < ' ' || byte == '"' || byte == '\\'; }

// Adds the bytes of a string's automaton as they are in JSON.
class StringQuoter {
 public:
  //   limit  as of StringsWithLimit; unset: nothing is counted
  StringQuoter(const ByteAutomaton& strings, std::optional<int64_t> limit,
               ByteNfa* nfa)
      : strings_(strings),
        limit_(limit),
        nfa_(*nfa),
        states_(strings.num_states()) {
    FindRuns();
  }

  absl::Status Add(ByteNfa::State start, ByteNfa::State end) {
    for (ByteNfa::State& state : states_) {
      ASSIGN_OR_RETURN(state, nfa_.AddState());
    }
    counting_ = states_;
    if (limit_) RETURN_IF_ERROR(AddCounts());
    RETURN_IF_ERROR(
        nfa_.AddBytes(start, '"', '"', states_[ByteAutomaton::kStart]));
    for (int32_t s = 0; s < strings_.num_states(); ++s) {
      RETURN_IF_ERROR(AddPlainBytes(s));
      RETURN_IF_ERROR(AddEscapes(s));
      if (!strings_.accepts(s)) continue;
      ByteNfa::State before = states_[s];
      if (limit_) {
        ASSIGN_OR_RETURN(before, nfa_.AddState());
        RETURN_IF_ERROR(
            PushdownAutomaton::AddLimit(*limit_, states_[s], before, &nfa_));
      }
      RETURN_IF_ERROR(nfa_.AddBytes(before, '"', '"', end));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddCounts() {
    constexpr uint8_t kByte = PushdownAutomaton::kCountByte;
    for (size_t s = 0; s < states_.size(); ++s) {
      ASSIGN_OR_RETURN(counting_[s], nfa_.AddState());
      RETURN_IF_ERROR(nfa_.AddBytes(counting_[s], kByte, kByte, states_[s]));
    }
    return absl::OkStatus();
  }

  // Bytes of one class, all or none of which begin a code point.
  struct Run {
    int first;
    int last;
    int byte_class;
  };

  // Finds runs of bytes that are not escaped.
  void FindRuns() {
    for (int byte = 0; byte < 256; ++byte) {
      if (IsEscaped(byte)) continue;
      const int byte_class = strings_.ClassOf(static_cast<uint8_t>(byte));
      if (!runs_.empty() && runs_.back().last + 1 == byte &&
          runs_.back().byte_class == byte_class &&
          BeginsCodePoint(byte) == BeginsCodePoint(byte - 1)) {
        runs_.back().last = byte;
      } else {
        runs_.push_back({byte, byte, byte_class});
      }
    }
  }

  // Adds runs of bytes that are not escaped.
  absl::Status AddPlainBytes(int32_t state) {
    for (size_t i = 0, next = 0; i < runs_.size(); i = next) {
      const ByteNfa::State to = AfterRun(state, runs_[i]);
      for (next = i + 1; next < runs_.size() &&
                         runs_[next].first == runs_[next - 1].last + 1 &&
                         AfterRun(state, runs_[next]) == to;) {
        ++next;
      }
      if (to == kNone) continue;
      RETURN_IF_ERROR(
          nfa_.AddBytes(states_[state], static_cast<uint8_t>(runs_[i].first),
                        static_cast<uint8_t>(runs_[next - 1].last), to));
    }
    return absl::OkStatus();
  }

  static constexpr ByteNfa::State kNone = -1;
  ByteNfa::State AfterRun(int32_t state, const Run& run) const {
    const int32_t next = strings_.NextByClass(state, run.byte_class);
    if (next == ByteAutomaton::kNone) return kNone;
    return (BeginsCodePoint(run.first) ? counting_ : states_)[next];
  }

  // Beginnings of escapes as a tree: prefixes of 1 to 5 bytes of \u000, and
  // \u001.
  static constexpr std::string_view kBytesOfBegins = "\\u0001";
  static constexpr int kNumBegins = 6;
  static constexpr int ParentOf(int begin) {
    return begin == kNumBegins ? begin - 2 : begin - 1;
  }
  using Begins = std::array<ByteNfa::State, kNumBegins + 1>;

  // Adds the escapes of a state: those of one beginning differ in a byte.
  absl::Status AddEscapes(int32_t state) {
    Begins begins;  // 0: the state
    begins.fill(kNone);
    begins[0] = states_[state];
    for (int byte = 0; byte < 128; ++byte) {
      if (!IsEscaped(byte)) continue;
      const int32_t to = strings_.Next(state, static_cast<uint8_t>(byte));
      if (to == ByteAutomaton::kNone) continue;
      const char letter = EscapeLetter(static_cast<uint8_t>(byte));
      const int begin = letter != 0 ? 1 : kNumBegins - 1 + (byte >> 4);
      RETURN_IF_ERROR(AddBegin(begin, &begins));
      const auto last =
          static_cast<uint8_t>(letter != 0 ? letter : kHexDigits[byte & 15]);
      RETURN_IF_ERROR(nfa_.AddBytes(begins[begin], last, last, counting_[to]));
    }
    return absl::OkStatus();
  }

  // Adds a beginning, unless it is there.
  absl::Status AddBegin(int begin, Begins* begins) {
    if ((*begins)[begin] >= 0) return absl::OkStatus();
    RETURN_IF_ERROR(AddBegin(ParentOf(begin), begins));
    ASSIGN_OR_RETURN((*begins)[begin], nfa_.AddState());
    const auto byte = static_cast<uint8_t>(kBytesOfBegins[begin - 1]);
    return nfa_.AddBytes((*begins)[ParentOf(begin)], byte, byte,
                         (*begins)[begin]);
  }

  const ByteAutomaton& strings_;
  const std::optional<int64_t> limit_;
  ByteNfa& nfa_;
  std::vector<Run> runs_;
  std::vector<ByteNfa::State> states_;  // by the string's state
  // Before these, where a code point counts; or these.
  std::vector<ByteNfa::State> counting_;
};

}  // namespace

absl::StatusOr<ByteAutomaton> StringsOfLength(int64_t min_length,
                                              std::optional<int64_t> max_length,
                                              CompileBudget* budget) {
  const int64_t num_counts = 1 + max_length.value_or(min_length);
  RETURN_IF_ERROR(budget->CheckStates(num_counts * (max_length ? 7 : 1)));
  RETURN_IF_ERROR(
      budget->Take(num_counts * static_cast<int64_t>(kUtf8Edges.size())));
  DfaEdges dfa = {.num_classes = kNumUtf8Classes};
  for (int c = 0; c < kNumUtf8Classes; ++c) {
    for (int byte = kUtf8Classes[c]; byte < kUtf8Classes[c + 1]; ++byte) {
      dfa.classes[byte] = static_cast<uint8_t>(c);
    }
  }
  dfa.accepts.assign(num_counts * kNumUtf8States, 0);
  for (int64_t count = 0; count < num_counts; ++count) {
    const bool is_last = count + 1 == num_counts;
    const auto first_state = static_cast<int32_t>(count * kNumUtf8States);
    dfa.accepts[first_state] = count >= min_length ? 1 : 0;
    if (is_last && max_length) continue;
    for (const Utf8Edge& edge : kUtf8Edges) {
      const bool counts = edge.to == kBetween && !is_last;
      const int32_t to = first_state + edge.to + (counts ? kNumUtf8States : 0);
      for (int c = 0; c < kNumUtf8Classes; ++c) {
        if (kUtf8Classes[c] < edge.first || kUtf8Classes[c] > edge.last) {
          continue;
        }
        dfa.Add(first_state + edge.from, c, c, to);
      }
    }
  }
  return BuildAutomaton(std::move(dfa), budget);
}

absl::StatusOr<ByteAutomaton> QuoteStrings(const ByteAutomaton& strings,
                                           CompileBudget* budget) {
  ByteNfa nfa(budget);
  ASSIGN_OR_RETURN(const ByteNfa::State start, nfa.AddState());
  ASSIGN_OR_RETURN(const ByteNfa::State end, nfa.AddState());
  RETURN_IF_ERROR(budget->Take(256 * int64_t{strings.num_states()}));
  RETURN_IF_ERROR(
      StringQuoter(strings, /*limit=*/std::nullopt, &nfa).Add(start, end));
  return std::move(nfa).Build(start, end);
}

absl::StatusOr<ByteAutomaton> QuoteStringsWithLimits(
    std::span<const StringsWithLimit> parts, CompileBudget* budget) {
  ByteNfa nfa(budget);
  ASSIGN_OR_RETURN(const ByteNfa::State start, nfa.AddState());
  ASSIGN_OR_RETURN(const ByteNfa::State end, nfa.AddState());
  for (const StringsWithLimit& part : parts) {
    RETURN_IF_ERROR(budget->Take(256 * int64_t{part.strings->num_states()}));
    RETURN_IF_ERROR(
        StringQuoter(*part.strings, part.limit, &nfa).Add(start, end));
  }
  return std::move(nfa).Build(start, end);
}

int64_t NumCodePoints(std::string_view string) {
  return std::ranges::count_if(
      string, [](char c) { return BeginsCodePoint(static_cast<uint8_t>(c)); });
}

// A breadth-first search, in which bytes within a code point add nothing.
int64_t MinCodePoints(const ByteAutomaton& strings) {
  std::vector<int64_t> fewest(strings.num_states(), -1);
  std::deque<std::pair<int32_t, int64_t>> queue = {{ByteAutomaton::kStart, 0}};
  while (true) {
    const auto [state, count] = queue.front();
    queue.pop_front();
    if (fewest[state] >= 0) continue;
    fewest[state] = count;
    if (strings.accepts(state)) return count;
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t next = strings.Next(state, static_cast<uint8_t>(byte));
      if (next == ByteAutomaton::kNone || fewest[next] >= 0) continue;
      if (BeginsCodePoint(byte)) {
        queue.emplace_back(next, count + 1);
      } else {
        queue.emplace_front(next, count);
      }
    }
  }
}

std::string QuoteString(std::string_view string) {
  std::string quoted = "\"";
  for (const char c : string) quoted += Escaped(static_cast<uint8_t>(c));
  return quoted + "\"";
}

}  // namespace espalier
