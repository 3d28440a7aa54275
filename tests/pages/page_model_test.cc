// Pages against a model without any: each sequence is a plain vector of
// tokens. Whatever is forked, appended, truncated, cleared or moved, a sequence
// read back through its table, from memory that saw only the recorded copies
// and writes to slots, is its vector.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "pages/page_table.h"
#include "pages/validate.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

enum class OpKind {
  kFork,
  kAppend,
  kTruncate,
  kStep,
  kTwin,
  kClear,
  kMove,
  kDrop
};

// One operation; its numbers select existing items modulo their count.
struct Op {
  OpKind kind;
  int sequence;
  int amount;
};

std::ostream& operator<<(std::ostream& out, const Op& op) {
  return out << "{" << static_cast<int>(op.kind) << ", " << op.sequence << ", "
             << op.amount << "}";
}

class World {
 public:
  World(int num_pages, int page_size)
      : pool_(num_pages, page_size), slots_(num_pages * page_size, -1) {
    sequences_.emplace_back(&pool_);
  }

  void Run(const Op& op) {
    const int sequence_idx = op.sequence % sequences_.size();
    Sequence& sequence = sequences_[sequence_idx];
    switch (op.kind) {
      case OpKind::kFork:
        return Fork(sequence, op.amount);
      case OpKind::kAppend:
        return Append(sequence, op.amount);
      case OpKind::kTruncate:
        return Truncate(sequence, op.amount);
      case OpKind::kStep:
        return Step();
      case OpKind::kTwin:
        return Twin(sequence, sequences_[op.amount % sequences_.size()]);
      case OpKind::kClear:
        sequence.table.Clear();
        return sequence.tokens.clear();
      case OpKind::kMove:
        return std::swap(sequence, sequences_.back());
      case OpKind::kDrop:
        sequences_.erase(sequences_.begin() + sequence_idx);
        if (sequences_.empty()) sequences_.emplace_back(&pool_);
    }
  }

  void Check() {
    std::vector<const PageTable*> tables;
    for (const Sequence& sequence : sequences_) {
      tables.push_back(&sequence.table);
      RC_ASSERT(ReadBack(sequence.table) == sequence.tokens);
    }
    RC_ASSERT(Message(ValidatePages(pool_, tables)) == "");
  }

  int num_held() const { return pool_.num_held(); }
  int num_failures() const { return num_failures_; }
  int num_copies() const { return num_copies_; }
  int num_rollbacks() const { return num_rollbacks_; }
  void DropAll() { sequences_.clear(); }

 private:
  struct Sequence {
    explicit Sequence(PagePool* pool) : table(pool) {}
    PageTable table;
    std::vector<int> tokens;
  };

  int& Slot(const PageTable& table, int position) {
    const int page_size = pool_.page_size();
    const PageId page = table.pages()[position / page_size].id();
    return slots_[page.value * page_size + position % page_size];
  }

  std::vector<int> ReadBack(const PageTable& table) {
    std::vector<int> tokens;
    for (int i = 0; i < table.num_tokens(); ++i) {
      tokens.push_back(Slot(table, i));
    }
    return tokens;
  }

  // Makes the copies, last one first: their order must not matter. What a copy
  // does not fill is garbage.
  void MakeCopies(const std::vector<PageCopy>& copies) {
    RC_ASSERT(Message(ValidateCopies(pool_, copies)) == "");
    const int page_size = pool_.page_size();
    num_copies_ += copies.size();
    for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
      const auto from = slots_.begin() + copy->from.value * page_size;
      const auto to = slots_.begin() + copy->to.value * page_size;
      std::fill_n(to, page_size, -2);
      std::copy_n(from, copy->num_tokens, to);
    }
  }

  void Write(Sequence& sequence) {
    for (int i = sequence.tokens.size(); i < sequence.table.num_tokens(); ++i) {
      RC_ASSERT(!sequence.table.pages()[i / pool_.page_size()].shared());
      Slot(sequence.table, i) = next_token_;
      sequence.tokens.push_back(next_token_++);
    }
  }

  void Fork(const Sequence& sequence, int amount) {
    const int num_tokens = amount % (sequence.tokens.size() + 1);
    Sequence child(&pool_);
    child.table = sequence.table.Fork(num_tokens);
    child.tokens.assign(sequence.tokens.begin(),
                        sequence.tokens.begin() + num_tokens);
    sequences_.push_back(std::move(child));
  }

  void Append(Sequence& sequence, int amount) {
    std::vector<PageCopy> copies = {PageCopy{}};  // left by an earlier append
    const int num_free = pool_.num_free();
    const absl::Status status = sequence.table.Append(amount, &copies);
    if (!status.ok()) {
      ++num_failures_;
      RC_ASSERT(status.code() == absl::StatusCode::kResourceExhausted);
      RC_ASSERT(copies.size() == 1u);
      RC_ASSERT(pool_.num_free() == num_free);
      RC_ASSERT(sequence.table.num_tokens() == sequence.tokens.size());
      return;
    }
    MakeCopies({copies.begin() + 1, copies.end()});
    Write(sequence);
  }

  // Drops as many tokens as `amount` says, and never allocates.
  void Truncate(Sequence& sequence, int amount) {
    const int num_tokens = static_cast<int>(sequence.tokens.size());
    const int num_left = num_tokens - amount % (num_tokens + 1);
    const int num_free = pool_.num_free();
    const bool into_shared =
        num_left % pool_.page_size() > 0 &&
        sequence.table.pages()[num_left / pool_.page_size()].shared();
    if (num_left < num_tokens && into_shared) ++num_rollbacks_;
    sequence.table.Truncate(num_left);
    sequence.tokens.resize(num_left);
    RC_ASSERT(pool_.num_free() >= num_free);
  }

  // As the engine steps: every sequence appends, then all copies are made,
  // then all write.
  void Step() {
    std::vector<PageCopy> copies;
    for (Sequence& sequence : sequences_) {
      if (!sequence.table.Append(1, &copies).ok()) break;
    }
    MakeCopies(copies);
    for (Sequence& sequence : sequences_) Write(sequence);
  }

  // `child` becomes what `parent` is, and keeps its own tail.
  void Twin(const Sequence& parent, Sequence& child) {
    if (&parent == &child) return;
    PageRef tail = child.table.DetachTail();
    child.tokens.resize(child.table.num_tokens());
    if (!tail || tail.shared()) return;
    const int num_tail_tokens = parent.tokens.size() % pool_.page_size();
    child.table =
        parent.table.Fork(parent.table.num_tokens() - num_tail_tokens);
    child.tokens = parent.tokens;
    if (num_tail_tokens == 0) return;
    MakeCopies(
        {{parent.table.pages().back().id(), tail.id(), num_tail_tokens}});
    child.table.AttachTail(std::move(tail), num_tail_tokens);
  }

  PagePool pool_;
  std::vector<int> slots_;  // [num_pages * page_size]
  std::vector<Sequence> sequences_;
  int next_token_ = 0;
  int num_failures_ = 0;
  int num_copies_ = 0;
  int num_rollbacks_ = 0;  // into a page that another holds too
};

rc::Gen<Op> AnyOp() {
  return rc::gen::construct<Op>(
      rc::gen::weightedElement<OpKind>({{4, OpKind::kFork},
                                        {4, OpKind::kAppend},
                                        {4, OpKind::kTruncate},
                                        {4, OpKind::kStep},
                                        {4, OpKind::kTwin},
                                        {1, OpKind::kClear},
                                        {1, OpKind::kMove},
                                        {2, OpKind::kDrop}}),
      rc::gen::inRange(0, 100), rc::gen::inRange(0, 40));
}

RC_GTEST_PROP(PageModelTest, ASequenceReadsBackAsItsTokens, ()) {
  const int page_size = *rc::gen::element(1, 2, 3, 16);
  const int num_pages = *rc::gen::inRange(0, 60);
  const auto ops = *rc::gen::container<std::vector<Op>>(AnyOp());
  World world(num_pages, page_size);
  for (const Op& op : ops) {
    world.Run(op);
    world.Check();
  }
  RC_CLASSIFY(world.num_failures() > 0, "an append failed");
  RC_CLASSIFY(world.num_copies() > 0, "a tail was copied");
  RC_CLASSIFY(world.num_rollbacks() > 0, "truncated into a shared page");
  world.DropAll();
  RC_ASSERT(world.num_held() == 0);
}

}  // namespace
}  // namespace espalier
