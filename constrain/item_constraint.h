// ItemConstraint: the items of a catalogue as the constraint of a request, but
// for those that it excludes. A state is a node of the catalogue.
//
// A token is legal if and only if an item below it is not excluded and fits
// into the room (constraint.h). A node's descendants of one level are adjacent,
// and so the items among them are counted at once; so are the excluded ones,
// which are intervals of nodes. So no path leads to excluded items alone.
//
// An item that begins no other one ends the sequence. For one that begins
// another, an id that ends sequences is legal there, so that the model chooses.
// Without such ids it is complete as well: a beam search then has it as a
// result, and continues with the others.
//
// Lists of tokens are slices of the catalogue where all of a node's tokens are
// legal, and kept here otherwise: near the end of the room, above what is
// excluded, and where an item begins another one.
//
// Thread safety: any thread may read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/constraint_tables.h"
#include "base/ids.h"
#include "base/item_tables.h"
#include "constrain/constraint.h"
#include "constrain/item_catalogue.h"

namespace espalier {

struct ItemOptions {
  // Ids that end a sequence, ascending, each once. In no item but as its last
  // token.
  std::vector<TokenId> end_ids = {};
  // Sequences that must not come. Others than items have no effect.
  TokenLists excluded = {};
  // Items that begin with one of these must not come.
  TokenLists excluded_prefixes = {};
  // Shorter items must not come; an end id at their end does not count.
  int32_t min_length = 0;
  // Tokens of the vocabulary, if there are to be tables; all ids are below.
  int vocab_size = 0;
  // Limit on the lists that are kept.
  int64_t max_list_bytes = int64_t{64} << 20;
};

class ItemConstraint final : public Constraint {
 public:
  explicit ItemConstraint(std::shared_ptr<const ItemCatalogue> items,
                          ItemOptions options = {});

  State start() const override { return ItemCatalogue::kRoot; }
  State Advance(State state, TokenId token) const override {
    return tables_.Advance(state, token);
  }
  // The error is kResourceExhausted: the lists take more than max_list_bytes.
  Legal LegalTokens(State state, int32_t room) const override;
  bool IsListed(State state, int32_t room) const override;
  bool TryList(State state, int32_t room, int64_t max_effort) const override;
  bool accepts(State state, int32_t room) const override {
    return tables_.Accepts(state, room);
  }
  bool ends(State state, int32_t room) const override {
    return tables_.Ends(state, room);
  }
  int32_t max_length() const override { return items_->max_length(); }
  int64_t MaxLegal(int64_t num_sequences) const override;
  int64_t MaxLast(int64_t num_sequences) const override;

  // Returns the number of tokens of the shortest item that may come; -1 if
  // there is none.
  int32_t MinRoom() const;

  // None if an item may both end a sequence and begin another item: a sample
  // ends there, and a beam ends and also continues, so that the state alone
  // does not say which.
  std::optional<ConstraintTables> tables() const override;
  std::shared_ptr<const void> trie_owner() const override { return items_; }

  const ItemCatalogue& items() const { return *items_; }
  // The arrays from which legal tokens and states follow. Valid as long as this
  // object.
  const ItemTables& item_tables() const { return tables_; }

 private:
  using Node = ItemCatalogue::Node;
  using Range = ItemCatalogue::Range;
  // A list has a node, and the room that matters.
  using Key = std::pair<Node, int32_t>;
  struct List {
    std::vector<TokenId> kept;  // empty if it is a slice of the catalogue
    std::span<const TokenId> tokens;
    int num_last = 0;
  };

  bool has_end_ids() const { return !options_.end_ids.empty(); }
  void Exclude();
  // More room makes no difference to a list.
  Key KeyOf(State state, int32_t level, int32_t room) const {
    return {state, std::min(room, items_->max_length() - level)};
  }
  // True if the list of a node is a slice of the catalogue.
  bool IsSlice(Node node, int32_t level, int32_t room) const {
    return tables_.IsFree(node, level, room) &&
           !tables_.AllowsEndId(node, level);
  }
  // Returns the nodes of a range that are excluded, or above one that is,
  // ascending.
  std::vector<Node> Touched(Range range) const;
  // Each appends the legal tokens that lead from a node of a level to these of
  // its children, and returns the number of those after which nothing may
  // follow. The second is for FitsAll, and looks at touched children alone.
  int AppendLegal(Range children, int32_t level, int32_t room,
                  std::vector<TokenId>* tokens) const;
  int AppendNotExcluded(Range children, int32_t level, int32_t room,
                        std::vector<TokenId>* tokens) const;
  List MakeList(Node node, int32_t level, int32_t room) const;

  const std::shared_ptr<const ItemCatalogue> items_;
  const ItemOptions options_;
  // Items that end by an end id where min_length still bans it; null: none.
  const std::shared_ptr<const ItemCatalogue::EndedItems> too_short_;
  std::vector<ItemTables::Excluded> excluded_;
  std::vector<Node> above_;
  ItemTables tables_;            // they refer to the above
  bool has_inner_ends_ = false;  // some item begins another one
  const absl::Status too_many_lists_;

  mutable std::mutex mutex_;
  mutable std::map<Key, List> lists_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t num_list_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
