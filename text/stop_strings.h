// StopStrings and StopMatcher: end generated text at stop strings. A stop is
// found anywhere, also across pieces, and no part of one is released before it
// is certain that it is not a stop.
//
// The stop that ends first wins, because generation could end there; among
// stops that end at the same byte, the longest. An Aho-Corasick automaton finds
// it with one look-up per byte, independent of the number of stops. Its state
// is the longest suffix of the text that begins a stop, which is exactly the
// text to hold back. So a matcher stores no text, and copying it forks it.
//
// A stop may contain special tokens, which the text does not show. They are fed
// to the matcher as SpecialTokenMark, and marks are never released. A stop with
// marks matches both as it is written and in its marked form.
//
// Text comes as whole UTF-8 characters, as IncrementalDetokenizer gives them.
// As stops are UTF-8 too, what is released is whole characters. Texts are
// compared by bytes: no case folding, no normalisation.
//
// Thread safety: StopStrings are constant after construction, any thread may
// read; a StopMatcher is a value without a rule of its own.
//
//   ASSIGN_OR_RETURN(auto stops, StopStrings::Create({"\n\n", "END"}));
//   StopMatcher matcher(stops);
//   matcher.Feed("The E").text;  // "The "
//   matcher.Feed("ND.");         // text "", stopped before ".", after 2 bytes
//
// Source: Aho and Corasick 1975, https://doi.org/10.1145/360825.360855.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace espalier {

// A special token in a text that does not show it: bytes that are in no UTF-8.
// REQUIRES: token >= 0.
std::string SpecialTokenMark(TokenId token);

class StopStrings {
 public:
  // Limits of Create. The automaton has a state a byte, and a state takes 2
  // bytes for each different byte in the stops: a few KiB as a rule, 2 MiB at
  // the limit. A mark has at most 13 bytes, and a token's name at least one.
  static constexpr size_t kMaxStops = 64;
  static constexpr size_t kMaxBytes = 4096;  // all stops together

  // None: nothing stops, and nothing is held back.
  StopStrings();

  // Equal stops are one, the first.
  // Errors: as Check.
  static absl::StatusOr<StopStrings> Create(std::vector<std::string> stops) {
    return Create(std::move(stops), {});
  }
  // `marked` has the marked forms of stops, by their index.
  using MarkedStop = std::pair<int, std::string>;
  static absl::StatusOr<StopStrings> Create(std::vector<std::string> stops,
                                            std::vector<MarkedStop> marked);

  // Checks that Create accepts `stops`, without building the automaton.
  // Errors: kInvalidArgument naming the limit, or the first stop that is empty
  //         or not UTF-8, by the request's field: "stop[0] is not UTF-8".
  static absl::Status Check(const std::vector<std::string>& stops);

  const std::vector<std::string>& stops() const { return stops_; }
  // True if special tokens must be fed, as marks.
  bool has_marks() const { return !marked_.empty(); }

 private:
  friend class StopMatcher;

  // A prefix of a stop: the longest one that the text so far ends in.
  using State = uint16_t;
  static constexpr State kRoot = 0;  // the empty one
  static constexpr int16_t kNone = -1;

  struct Node {
    uint16_t size = 0;         // bytes in the prefix
    int16_t form_idx = kNone;  // a form that the prefix begins
    int16_t match = kNone;     // the longest form that it ends in
  };

  // A form is a stop as it is written, or after these a marked one.
  int num_forms() const {
    return static_cast<int>(stops_.size() + marked_.size());
  }
  const std::string& Form(int form_idx) const;
  int StopOf(int form_idx) const;

  void MakeByteClasses();
  void AddToTrie(int form_idx);
  void LinkStates();
  State& NextOf(State state, int byte_class) {
    return next_[state * num_classes_ + byte_class];
  }

  State Next(State state, char byte) const {
    return next_[state * num_classes_ + class_of_[static_cast<uint8_t>(byte)]];
  }
  int Match(State state) const { return nodes_[state].match; }
  std::string_view Prefix(State state) const;

  std::vector<std::string> stops_;
  std::vector<MarkedStop> marked_;
  // Bytes that no stop has are all of class 0.
  std::array<uint8_t, 256> class_of_ = {};
  int num_classes_ = 1;
  std::vector<Node> nodes_;  // by state
  std::vector<State> next_;  // [num_states, num_classes_]
};

// Text that a piece or a token released.
struct TextPiece {
  std::string text;
  // The stop that was hit, if one was.
  std::optional<int> stop_idx;
  // Bytes of the fed text up to the end of the stop; all of it if none was hit.
  size_t consumed_bytes = 0;
};

class StopMatcher {
 public:
  // Starts at the beginning of a text. `stops` must outlive this and its
  // copies, and must not move. The text ends before the stop, or after it if
  // `include_stop`.
  explicit StopMatcher(const StopStrings& stops, bool include_stop = false)
      : stops_(&stops), include_stop_(include_stop) {}

  // Releases all text but the longest suffix that may begin a stop. After a hit
  // nothing is released or consumed any more.
  // REQUIRES: whole characters of UTF-8, and marks.
  TextPiece Feed(std::string_view text) { return Feed(text, true); }

  // As Feed, but no stop ends in `text`; one may begin there.
  TextPiece FeedUnmatched(std::string_view text) { return Feed(text, false); }

  // Releases the held text when nothing follows; nothing after a hit.
  std::string Finish();

  bool stopped() const { return stopped_; }

 private:
  TextPiece Feed(std::string_view text, bool matches);

  const StopStrings* stops_;
  StopStrings::State state_ = StopStrings::kRoot;
  bool include_stop_;
  bool stopped_ = false;
};

}  // namespace espalier
