#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

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

}  // namespace

StopStrings::StopStrings() : nodes_(1), next_(1, kRoot) {}

absl::Status StopStrings::Check(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    return InvalidArgument("stop must have at most ", kMaxStops,
                           " strings, got ", stops.size());
  }
  size_t num_bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return InvalidArgument("stop[", i, "] must not be empty, got \"\"");
    }
    if (!IsUtf8(stops[i])) {
      return InvalidArgument("stop[", i, "] is not UTF-8");
    }
    num_bytes += stops[i].size();
  }
  if (num_bytes > kMaxBytes) {
    return InvalidArgument("stop must have at most ", kMaxBytes,
                           " bytes together, got ", num_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<StopStrings> StopStrings::Create(
    std::vector<std::string> stops) {
  RETURN_IF_ERROR(Check(stops));
  StopStrings automaton;
  automaton.stops_ = std::move(stops);
  automaton.MakeByteClasses();
  for (size_t i = 0; i < automaton.stops_.size(); ++i) automaton.AddToTrie(i);
  automaton.LinkStates();
  return automaton;
}

void StopStrings::MakeByteClasses() {
  for (const std::string& stop : stops_) {
    for (const char byte : stop) {
      uint8_t& byte_class = class_of_[static_cast<uint8_t>(byte)];
      // UTF-8 uses 243 of the bytes, so that a class fits.
      if (byte_class == 0) byte_class = static_cast<uint8_t>(num_classes_++);
    }
  }
  next_.assign(num_classes_, kRoot);
}

// No edge leads back to the root yet, so kRoot stands for none.
void StopStrings::AddToTrie(int stop_idx) {
  State state = kRoot;
  for (const char byte : stops_[stop_idx]) {
    const int byte_class = class_of_[static_cast<uint8_t>(byte)];
    if (NextOf(state, byte_class) == kRoot) {
      NextOf(state, byte_class) = static_cast<State>(nodes_.size());
      Node node;
      node.size = static_cast<uint16_t>(nodes_[state].size + 1);
      node.stop_idx = static_cast<int16_t>(stop_idx);
      nodes_.push_back(node);
      next_.resize(next_.size() + num_classes_, kRoot);
    }
    state = NextOf(state, byte_class);
  }
  if (nodes_[state].match == kNone) {
    nodes_[state].match = static_cast<int16_t>(stop_idx);
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
  if (node.stop_idx == kNone) return {};
  return std::string_view(stops_[node.stop_idx]).substr(0, node.size);
}

TextPiece StopMatcher::Feed(std::string_view text) {
  TextPiece piece;
  if (stopped_) return piece;
  const std::string_view held = stops_->Prefix(state_);
  int match = StopStrings::kNone;
  while (piece.consumed_bytes < text.size() && match == StopStrings::kNone) {
    state_ = stops_->Next(state_, text[piece.consumed_bytes++]);
    match = stops_->Match(state_);
  }
  const size_t end = held.size() + piece.consumed_bytes;
  size_t num_kept = stops_->Prefix(state_).size();
  if (match != StopStrings::kNone) {
    stopped_ = true;
    piece.stop_idx = match;
    num_kept = include_stop_ ? 0 : stops_->stops()[match].size();
  }
  piece.text = Begin(held, text, end - num_kept);
  return piece;
}

std::string StopMatcher::FeedUnmatched(std::string_view text) {
  if (stopped_) return {};
  const std::string_view held = stops_->Prefix(state_);
  state_ = StopStrings::kRoot;
  return Begin(held, text, held.size() + text.size());
}

}  // namespace espalier
