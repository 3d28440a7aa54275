// AppendForced: the bytes with which every text of an automaton continues after
// a state (Constraint::AppendForcedBytes).
//
// Thread safety: functions without state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace espalier {

// Appends at most `max_bytes` to `*bytes`.
//   automaton  ClassOf(byte) is in [0, num_classes())
//   ends       ends(state): a text may end there, or next() met what is not
//              known
//   next       next(state, byte): the state after it; below 0 if it may not
//              follow
template <typename Automaton, typename State, typename Ends, typename Next>
void AppendForced(const Automaton& automaton, State state, const Ends& ends,
                  const Next& next, size_t max_bytes, std::string* bytes) {
  constexpr int kSeveral = 256;
  std::array<int, 256> byte_of = {};  // the only one of a class
  byte_of.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    int& only = byte_of[automaton.ClassOf(static_cast<uint8_t>(byte))];
    only = only < 0 ? byte : kSeveral + byte;
  }
  for (size_t i = 0; i < max_bytes && !ends(state); ++i) {
    State forced = -1;
    int forced_byte = 0;
    for (int c = 0; c < automaton.num_classes(); ++c) {
      const State after =
          next(state, static_cast<uint8_t>(byte_of[c] % kSeveral));
      if (after < 0) continue;
      if (forced >= 0 || byte_of[c] >= kSeveral) return;
      forced = after;
      forced_byte = byte_of[c];
    }
    if (forced < 0 || ends(state)) return;  // or next() met what is unknown
    bytes->push_back(static_cast<char>(forced_byte));
    state = forced;
  }
}

}  // namespace espalier
