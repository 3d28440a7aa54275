// ItemTables: the items of a catalogue that a request may have as arrays, and
// the rules of its states: one definition for the host and for devices. An
// ItemConstraint makes them (constrain/item_constraint.h), which says what the
// rules are, of the trie of an ItemCatalogue (constrain/item_catalogue.h),
// which says how its nodes are numbered.
//
//   state   0 to num_nodes - 1   a node of the trie; 0 is the root
//           num_nodes            after an end id
//           -1                   none
//
// Values: pointers to arrays that others own, in host memory or in a device's.
// The functions are pure, of arrays in memory that the caller can read.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/ids.h"
#include "base/rank_bits_view.h"

namespace espalier {

struct ItemTrie {
  using Node = int32_t;
  static constexpr Node kNone = -1;

  // Nodes [begin, end) of one level.
  struct Range {
    Node begin = 0;
    Node end = 0;
    ESPALIER_HOST_DEVICE int32_t size() const { return end - begin; }
    ESPALIER_HOST_DEVICE bool empty() const { return begin == end; }
  };

  Node num_nodes = 0;
  const TokenId* tokens = nullptr;  // [num_nodes]  that lead to each
  RankBitsView inner = {};          // [num_nodes]  has children
  RankBitsView first = {};          // [num_nodes]  is its parent's first child
  RankBitsView ends = {};           // [num_nodes]  an item ends here
  TokenId max_token = -1;
  // Tokens of the longest item, and of the shortest that begins no other one.
  int32_t max_length = 0;
  int32_t min_leaf_length = 0;
  const Node* level_begins = nullptr;  // [max_length + 2]

  ESPALIER_HOST_DEVICE bool has_children(Node node) const {
    return inner[node];
  }
  // Returns the number of tokens that lead to the node.
  ESPALIER_HOST_DEVICE int32_t LevelOf(Node node) const {
    return UpperBound(level_begins, max_length + 2, node) - 1;
  }
  ESPALIER_HOST_DEVICE Range Children(Node node) const {
    if (!inner[node]) return {};
    const int64_t rank = inner.Rank(node);
    const int64_t begin = first.Select(rank);
    return {static_cast<Node>(begin),
            static_cast<Node>(first.SelectNext(begin, rank))};
  }
  // Returns the children of all nodes of a range.
  ESPALIER_HOST_DEVICE Range Below(Range range) const {
    const int64_t begin = inner.Rank(range.begin);
    const int64_t end = inner.Rank(range.end);
    if (begin == end) return {};
    return {static_cast<Node>(first.Select(begin)),
            static_cast<Node>(first.Select(end))};
  }
  // Returns the child for `token`, or kNone if it may not follow.
  ESPALIER_HOST_DEVICE Node Child(Node node, TokenId token) const {
    const Range children = Children(node);
    const int32_t after =
        UpperBound(tokens + children.begin, children.size(), token);
    const Node child = children.begin + after - 1;
    return after > 0 && tokens[child] == token ? child : kNone;
  }
  // Returns the number of items that end in a range.
  ESPALIER_HOST_DEVICE int64_t NumEnds(Range range) const {
    return ends.Rank(range.end) - ends.Rank(range.begin);
  }

  // Returns the number of the ascending values that are at most `value`.
  ESPALIER_HOST_DEVICE static int32_t UpperBound(const int32_t* values,
                                                 int32_t num_values,
                                                 int32_t value) {
    int32_t begin = 0;
    while (num_values > 0) {
      const int32_t half = num_values / 2;
      if (values[begin + half] <= value) {
        begin += half + 1;
        num_values -= half + 1;
      } else {
        num_values = half;
      }
    }
    return begin;
  }
};

// Items that end at nodes of one level: a bit for each node of it.
struct ItemLevelEnds {
  ItemTrie::Range level = {};
  RankBitsView bits = {};  // [level.size()]

  // Returns the number of these items that end in a range.
  ESPALIER_HOST_DEVICE int64_t NumEnds(ItemTrie::Range range) const {
    return bits.Rank(Place(range.end)) - bits.Rank(Place(range.begin));
  }

 private:
  ESPALIER_HOST_DEVICE int64_t Place(ItemTrie::Node node) const {
    if (node <= level.begin) return 0;
    return (node < level.end ? node : level.end) - level.begin;
  }
};

struct ItemTables {
  using Node = ItemTrie::Node;
  using Range = ItemTrie::Range;
  static constexpr int32_t kNoState = -1;
  static constexpr int32_t kAnyRoom = INT32_MAX;

  // Nodes [begin, end) that are excluded.
  struct Excluded {
    Node begin = 0;
    Node end = 0;
    int64_t num_ends_before = 0;  // items in the intervals before
  };

  ItemTrie trie = {};
  int32_t num_excluded = 0;
  const Excluded* excluded = nullptr;  // ascending, apart from each other
  int32_t num_above = 0;
  const Node* above = nullptr;  // ascending: nodes above an excluded one
  int32_t num_end_ids = 0;
  const TokenId* end_ids = nullptr;  // ascending
  int32_t min_length = 0;            // shorter items may not come
  // Items that end by an end id where min_length still bans it; or none.
  ItemLevelEnds too_short = {};

  ESPALIER_HOST_DEVICE int32_t ended() const { return trie.num_nodes; }
  // True if the state is a node.
  ESPALIER_HOST_DEVICE bool IsNode(int32_t state) const {
    return state >= 0 && state < trie.num_nodes;
  }

  // Returns the state after a token; kNoState if it may not follow, however
  // many may come after it.
  ESPALIER_HOST_DEVICE int32_t Advance(int32_t state, TokenId token) const {
    if (!IsNode(state)) return kNoState;
    const Node child = trie.Child(state, token);
    const int32_t level = trie.LevelOf(state);
    if (child != ItemTrie::kNone &&
        (IsFree(state, level, kAnyRoom) ||
         Reaches({child, child + 1}, level + 1, kAnyRoom))) {
      return child;
    }
    const bool is_end = state != 0 && IsEndId(token) && IsEnd(state, level);
    return is_end ? ended() : kNoState;
  }
  // True if the output may end. REQUIRES: a state, not the root.
  ESPALIER_HOST_DEVICE bool Accepts(int32_t state, int32_t room) const {
    if (state == ended()) return true;
    return IsEnd(state, trie.LevelOf(state)) &&
           (num_end_ids == 0 || Ends(state, room));
  }
  // True if no token may follow. REQUIRES: as Accepts.
  ESPALIER_HOST_DEVICE bool Ends(int32_t state, int32_t room) const {
    if (!IsNode(state) || room < 1 || !trie.has_children(state)) return true;
    const int32_t level = trie.LevelOf(state);
    return !IsFree(state, level, room) &&
           !Reaches(trie.Children(state), level + 1, room - 1);
  }
  // True if the token may follow where the sequence has room for `room`.
  ESPALIER_HOST_DEVICE bool IsLegal(int32_t state, int32_t room,
                                    TokenId token) const {
    if (!IsNode(state) || room < 1) return false;
    const int32_t level = trie.LevelOf(state);
    const Node child = trie.Child(state, token);
    if (child != ItemTrie::kNone &&
        (IsFree(state, level, room) ||
         IsLegalChild(child, level + 1, room - 1, FitsAll(level, room)))) {
      return true;
    }
    return IsEndId(token) && AllowsEndId(state, level) && !Ends(state, room);
  }
  // True if the token of a child may come. `level` and `room` are those after
  // it; `fits_all` is FitsAll of its parent.
  ESPALIER_HOST_DEVICE bool IsLegalChild(Node child, int32_t level,
                                         int32_t room, bool fits_all) const {
    return (fits_all && !IsTouched(child)) ||
           Reaches({child, child + 1}, level, room);
  }

  // True if every item that begins no other, below a node of a level, fits into
  // the room and is not too short.
  ESPALIER_HOST_DEVICE bool FitsAll(int32_t level, int32_t room) const {
    const int32_t shortest =
        trie.min_leaf_length > level + 1 ? trie.min_leaf_length : level + 1;
    return room >= trie.max_length - level &&
           (!has_short_items() || level >= min_length) &&
           min_length <= shortest;
  }
  // FitsAll, and none below the node is excluded.
  ESPALIER_HOST_DEVICE bool IsFree(Node node, int32_t level,
                                   int32_t room) const {
    return FitsAll(level, room) && !IsAbove(node);
  }
  ESPALIER_HOST_DEVICE bool has_short_items() const {
    return !too_short.level.empty();
  }
  // Returns the number of items that end in a range, but for those that are too
  // short by an end id.
  ESPALIER_HOST_DEVICE int64_t NumLongEnds(Range range) const {
    const int64_t num_ends = trie.NumEnds(range);
    return has_short_items() ? num_ends - too_short.NumEnds(range) : num_ends;
  }
  // Returns the number of items that may come, of those that end in a range.
  ESPALIER_HOST_DEVICE int64_t NumEnds(Range range, int32_t level) const {
    if (level < min_length) return 0;
    const int64_t num_ends = NumLongEnds(range);
    if (num_excluded == 0 || num_ends == 0) return num_ends;
    return num_ends - NumExcludedBefore(range.end) +
           NumExcludedBefore(range.begin);
  }
  // True if one that may come ends in a range, or at most `room` levels below.
  ESPALIER_HOST_DEVICE bool Reaches(Range range, int32_t level,
                                    int32_t room) const {
    for (; room >= 0 && !range.empty(); --room, ++level) {
      if (NumEnds(range, level) > 0) return true;
      range = trie.Below(range);
    }
    return false;
  }
  // True if one that may come ends at a node.
  ESPALIER_HOST_DEVICE bool IsEnd(Node node, int32_t level) const {
    return trie.ends[node] && NumEnds({node, node + 1}, level) > 0;
  }
  // True if an end id is legal. REQUIRES: tokens may follow.
  ESPALIER_HOST_DEVICE bool AllowsEndId(Node node, int32_t level) const {
    return num_end_ids > 0 && IsEnd(node, level);
  }

 private:
  ESPALIER_HOST_DEVICE bool IsEndId(TokenId token) const {
    for (int32_t i = 0; i < num_end_ids; ++i) {
      if (end_ids[i] == token) return true;
    }
    return false;
  }
  ESPALIER_HOST_DEVICE bool IsAbove(Node node) const {
    const int32_t after = ItemTrie::UpperBound(above, num_above, node);
    return after > 0 && above[after - 1] == node;
  }
  // Returns the number of intervals of excluded nodes that begin before a node.
  ESPALIER_HOST_DEVICE int32_t NumExcludedFrom(Node node) const {
    int32_t begin = 0;
    for (int32_t end = num_excluded; begin < end;) {
      const int32_t middle = begin + (end - begin) / 2;
      if (excluded[middle].begin < node) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
  // True if the node is excluded, or above one that is.
  ESPALIER_HOST_DEVICE bool IsTouched(Node node) const {
    const int32_t num_begun = NumExcludedFrom(node + 1);
    return (num_begun > 0 && node < excluded[num_begun - 1].end) ||
           IsAbove(node);
  }
  // Returns the number of items that end at excluded nodes before a node.
  ESPALIER_HOST_DEVICE int64_t NumExcludedBefore(Node node) const {
    const int32_t num_begun = NumExcludedFrom(node);
    if (num_begun == 0) return 0;
    const Excluded& last = excluded[num_begun - 1];
    return last.num_ends_before +
           NumLongEnds({last.begin, node < last.end ? node : last.end});
  }
};

}  // namespace espalier
