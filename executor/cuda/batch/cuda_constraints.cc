#include "executor/cuda/batch/cuda_constraints.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/status.h"

namespace espalier {
namespace {

// Tables beyond these bytes stay only while steps need them.
constexpr int64_t kMaxIdleBytes = int64_t{256} << 20;

// True if the tables are those of any request with the same ending ids and
// least length.
bool AreShared(const ConstraintTables& tables) {
  return tables.has_items() && tables.items.num_excluded == 0;
}

// Returns an array that no other tables of a constraint have, or of a catalogue
// if they are shared.
const void* ArrayOf(const ConstraintTables& tables) {
  if (tables.has_stacks()) return tables.stacks.next;
  if (!tables.has_items()) return tables.next;
  if (AreShared(tables)) return tables.items.trie.tokens;
  return tables.items.excluded;
}

const std::shared_ptr<const void>& OwnerOf(const SelectionParams& params) {
  return AreShared(*params.constraint) ? params.trie_owner
                                       : params.allowed_owner;
}

std::span<const TokenId> EndIdsOf(const ItemTables& items) {
  return {items.end_ids, static_cast<size_t>(items.num_end_ids)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaConstraints>> CudaConstraints::Create(
    int max_constraints, int vocab_size, cudaStream_t stream) {
  std::unique_ptr<CudaConstraints> constraints(
      new CudaConstraints(max_constraints, vocab_size, stream));
  ASSIGN_OR_RETURN(
      constraints->on_device_,
      TakeDeviceMemory<CudaConstraint>("constraints", max_constraints));
  return constraints;
}

void CudaConstraints::Place(const StepPlan& plan) {
  ++num_plans_;
  failures_.clear();
  std::vector<const SelectionParams*> needed;
  for (const PlanSelection& selection : plan.selections) {
    if (selection.params->constraint.has_value()) {
      needed.push_back(selection.params.get());
    }
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    if (continuation.params->constraint.has_value()) {
      needed.push_back(continuation.params.get());
    }
  }
  for (const SelectionParams* const params : needed) {
    Entry* const known = FindEntry(*params);
    if (known != nullptr) known->last_plan = num_plans_;
  }
  for (const SelectionParams* const params : needed) {
    if (FindEntry(*params) != nullptr) continue;
    const absl::Status status = Add(*params);
    if (!status.ok()) failures_.push_back({params, status});
  }
}

CudaConstraints::Entry* CudaConstraints::FindEntry(
    const SelectionParams& params) const {
  const ConstraintTables& tables = *params.constraint;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    // An array may be where that of a constraint was that is gone.
    if (entry->array != ArrayOf(tables) ||
        entry->owner.lock() != OwnerOf(params)) {
      continue;
    }
    if (!AreShared(tables) ||
        (entry->min_length == tables.items.min_length &&
         std::ranges::equal(entry->end_ids, EndIdsOf(tables.items)))) {
      return entry.get();
    }
  }
  return nullptr;
}

absl::StatusOr<int> CudaConstraints::Find(const SelectionParams& params) const {
  if (!params.constraint.has_value()) return -1;
  for (const Failure& failure : failures_) {
    if (failure.params == &params) return failure.status;
  }
  const Entry* const entry = FindEntry(params);
  if (entry == nullptr || entry->last_plan != num_plans_) {
    return Internal("the tables of a constraint were not placed");
  }
  return entry->index;
}

absl::Status CudaConstraints::Add(const SelectionParams& params) {
  const ConstraintTables& tables = *params.constraint;
  if (tables.vocab_size != vocab_size_) {
    return InvalidArgument("a constraint has ", tables.vocab_size,
                           " tokens, the model ", vocab_size_);
  }
  RETURN_IF_ERROR(MakeRoom());
  auto entry = std::make_unique<Entry>();
  entry->owner = OwnerOf(params);
  entry->array = ArrayOf(tables);
  RETURN_IF_ERROR(tables.has_items() ? AddItems(params, entry.get())
                                     : AddTexts(tables, entry.get()));
  entry->index = FreeIndex();
  entry->last_plan = num_plans_;
  CudaConstraint copy = entry->tables.constraint();
  if (tables.has_items()) {
    copy.tables = {.vocab_size = vocab_size_, .items = entry->items.tables()};
  }
  RETURN_IF_CUDA_ERROR(cudaMemcpy(on_device_.data() + entry->index, &copy,
                                  sizeof(copy), cudaMemcpyHostToDevice));
  // Steps do not wait for such a copy by themselves.
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status CudaConstraints::AddTexts(const ConstraintTables& tables,
                                       Entry* entry) {
  entry->inside_bytes = tables.inside.bytes;
  entry->first_bytes = tables.first.bytes;
  ASSIGN_OR_RETURN(entry->inside, TextsOf(tables.inside));
  ASSIGN_OR_RETURN(entry->first, TextsOf(tables.first));
  ASSIGN_OR_RETURN(entry->tables, CudaConstraintTables::Create(
                                      tables, entry->inside, entry->first));
  return absl::OkStatus();
}

absl::Status CudaConstraints::AddItems(const SelectionParams& params,
                                       Entry* entry) {
  const ItemTables& items = params.constraint->items;
  const std::span<const TokenId> end_ids = EndIdsOf(items);
  entry->end_ids.assign(end_ids.begin(), end_ids.end());
  entry->min_length = items.min_length;
  ASSIGN_OR_RETURN(const std::shared_ptr<const CudaItemTrie> trie,
                   tries_.Find(items.trie, params.trie_owner));
  ASSIGN_OR_RETURN(entry->items, CudaItemTables::Create(items, trie));
  return absl::OkStatus();
}

absl::Status CudaConstraints::MakeRoom() {
  // Needed ones first, then by falling time of use; gone ones last.
  const auto rank = [this](const std::unique_ptr<Entry>& entry) {
    if (entry->last_plan == num_plans_) return num_plans_;
    return entry->owner.expired() ? int64_t{-1} : entry->last_plan;
  };
  std::ranges::stable_sort(entries_, std::greater<>(), rank);
  bool has_waited = false;
  while (!entries_.empty() && rank(entries_.back()) < num_plans_) {
    const bool must_go = rank(entries_.back()) < 0 ||
                         std::ssize(entries_) >= max_constraints_ ||
                         num_bytes() - tries_.num_bytes() > kMaxIdleBytes;
    if (!must_go) break;
    // Steps that still run may read them.
    if (!has_waited) RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
    has_waited = true;
    entries_.pop_back();
  }
  tries_.DropGone();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CudaTokenTexts>> CudaConstraints::TextsOf(
    const TokenTexts& texts) const {
  if (texts.indptr == nullptr) return nullptr;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->owner.expired() || entry->inside == nullptr) continue;
    if (entry->inside_bytes == texts.bytes) return entry->inside;
    if (entry->first_bytes == texts.bytes) return entry->first;
  }
  ASSIGN_OR_RETURN(CudaTokenTexts copy,
                   CudaTokenTexts::Create(texts, vocab_size_));
  return std::make_shared<const CudaTokenTexts>(std::move(copy));
}

int CudaConstraints::FreeIndex() const {
  std::vector<bool> is_used(max_constraints_);
  for (const std::unique_ptr<Entry>& entry : entries_) {
    is_used[entry->index] = true;
  }
  const auto free = std::ranges::find(is_used, false);
  CHECK(free != is_used.end()) << "more constraints than rows";
  return static_cast<int>(free - is_used.begin());
}

int64_t CudaConstraints::num_bytes() const {
  int64_t sum =
      static_cast<int64_t>(on_device_.size_bytes()) + tries_.num_bytes();
  std::vector<const CudaTokenTexts*> texts;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    sum += entry->tables.num_bytes() + entry->items.num_bytes();
    for (const auto& shared : {entry->inside, entry->first}) {
      if (shared == nullptr) continue;
      if (std::ranges::find(texts, shared.get()) != texts.end()) continue;
      texts.push_back(shared.get());
      sum += shared->num_bytes();
    }
  }
  return sum;
}

}  // namespace espalier
