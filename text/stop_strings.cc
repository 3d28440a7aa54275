#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// The first `num_bytes` of `held` and `text` as one text.
std::string Begin(std::string_view held, std::string_view text,
                  size_t num_bytes) {
  std::string begin(held.substr(0, num_bytes));
  begin += text.substr(0, num_bytes - begin.size());
  return begin;
}

// Octal digits between a byte that begins a mark and one that ends it: UTF-8
// uses none of them.
constexpr char kMarkBegin = '\xFF', kMarkEnd = '\xFE';
constexpr char kMarkDigit = '\xF5';

std::string WithoutMarks(std::string text) {
  std::string shown;
  bool is_mark = false;
  for (const char byte : text) {
    if (byte == kMarkBegin) is_mark = true;
    if (!is_mark) shown += byte;
    if (byte == kMarkEnd) is_mark = false;
  }
  return shown;
}

}  // namespace

std::string SpecialTokenMark(TokenId token) {
  std::string mark(1, kMarkBegin);
  for (auto rest = static_cast<uint32_t>(token); rest > 0; rest /= 8) {
    mark += static_cast<char>(kMarkDigit + rest % 8);
  }
  return mark + kMarkEnd;
}

StopStrings::StopStrings() : nodes_(1), next_(1, kRoot) {}

absl::Status StopStrings::Check(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    return InvalidField("`stop` must have at most ", Limit(kMaxStops),
                        " strings", Got(stops.size()));
  }
  size_t num_bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return InvalidField("`stop`[", i, "] must not be empty", Got("\"\""));
    }
    if (!IsUtf8(stops[i])) {
      return InvalidField("`stop`[", i, "] is not UTF-8");
    }
    num_bytes += stops[i].size();
  }
  if (num_bytes > kMaxBytes) {
    return InvalidField("`stop` must have at most ", Limit(kMaxBytes),
                        " bytes together", Got(num_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<StopStrings> StopStrings::Create(
    std::vector<std::string> stops, std::vector<MarkedStop> marked) {
  RETURN_IF_ERROR(Check(stops));
  StopStrings automaton;
  automaton.stops_ = std::move(stops);
  automaton.marked_ = std::move(marked);
  automaton.MakeByteClasses();
  for (int i = 0; i < automaton.num_forms(); ++i) automaton.AddToTrie(i);
  automaton.LinkStates();
  return automaton;
}

const std::string& StopStrings::Form(int form_idx) const {
  const int num_stops = static_cast<int>(stops_.size());
  return form_idx < num_stops ? stops_[form_idx]
                              : marked_[form_idx - num_stops].second;
}

int StopStrings::StopOf(int form_idx) const {
  const int num_stops = static_cast<int>(stops_.size());
  return form_idx < num_stops ? form_idx : marked_[form_idx - num_stops].first;
}

void StopStrings::MakeByteClasses() {
  for (int i = 0; i < num_forms(); ++i) {
    for (const char byte : Form(i)) {
      uint8_t& byte_class = class_of_[static_cast<uint8_t>(byte)];
      // UTF-8 uses 243 of the bytes and marks 10, so that a class fits.
      if (byte_class == 0) byte_class = static_cast<uint8_t>(num_classes_++);
    }
  }
  next_.assign(num_classes_, kRoot);
}

// No edge leads back to the root yet, so kRoot stands for none.
void StopStrings::AddToTrie(int form_idx) {
  State state = kRoot;
  for (const char byte : Form(form_idx)) {
    const int byte_class = class_of_[static_cast<uint8_t>(byte)];
    if (NextOf(state, byte_class) == kRoot) {
      NextOf(state, byte_class) = static_cast<State>(nodes_.size());
      Node node;
      node.size = static_cast<uint16_t>(nodes_[state].size + 1);
      node.form_idx = static_cast<int16_t>(form_idx);
      nodes_.push_back(node);
      next_.resize(next_.size() + num_classes_, kRoot);
    }
    state = NextOf(state, byte_class);
  }
  if (nodes_[state].match == kNone) {
    nodes_[state].match = static_cast<int16_t>(form_idx);
  }
}

// Fills in the edges that the trie lacks, the short prefixes before the long:
// where a prefix does not go on, its longest suffix that is a prefix does.
void StopStrings::LinkStates() {
  std::vector<State> suffix_of(nodes_.size(), kRoot);
  std::vector<State> queue = {kRoot};
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    for (int byte_class = 0; byte_class < num_classes_; ++byte_class) {
      State& next = NextOf(state, byte_class);
      const State through_suffix =
          state == kRoot ? kRoot : NextOf(suffix_of[state], byte_class);
      if (next == kRoot) {
        next = through_suffix;
        continue;
      }
      suffix_of[next] = through_suffix;
      if (nodes_[next].match == kNone) {
        nodes_[next].match = nodes_[through_suffix].match;
      }
      queue.push_back(next);
    }
  }
}

std::string_view StopStrings::Prefix(State state) const {
  const Node& node = nodes_[state];
  if (node.form_idx == kNone) return {};
  return std::string_view(Form(node.form_idx)).substr(0, node.size);
}

TextPiece StopMatcher::Feed(std::string_view text, bool matches) {
  TextPiece piece;
  if (stopped_) return piece;
  const std::string_view held = stops_->Prefix(state_);
  int match = StopStrings::kNone;
  while (piece.consumed_bytes < text.size() && match == StopStrings::kNone) {
    state_ = stops_->Next(state_, text[piece.consumed_bytes++]);
    if (matches) match = stops_->Match(state_);
  }
  const size_t end = held.size() + piece.consumed_bytes;
  const bool is_hit = match != StopStrings::kNone;
  const size_t num_kept =
      is_hit ? stops_->Form(match).size() : stops_->Prefix(state_).size();
  piece.text = Begin(held, text, end - num_kept);
  if (stops_->has_marks()) piece.text = WithoutMarks(std::move(piece.text));
  if (!is_hit) return piece;
  stopped_ = true;
  piece.stop_idx = stops_->StopOf(match);
  if (include_stop_) piece.text += stops_->stops()[*piece.stop_idx];
  return piece;
}

std::string StopMatcher::Finish() {
  if (stopped_) return {};
  std::string held(stops_->Prefix(state_));
  state_ = StopStrings::kRoot;
  return stops_->has_marks() ? WithoutMarks(std::move(held)) : held;
}

}  // namespace espalier
