#include "trace/trace_tree.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "base/wording.h"

namespace espalier {
namespace {

// More slots than any search has; bounds the size of drawings.
constexpr int kMaxSlots = 1 << 20;

constexpr std::string_view kSamples = "samples";  // TraceRequest::strategy

absl::Status CheckNode(const TraceTree& tree, std::string_view field,
                       int node) {
  if (node >= 0 && node < tree.nodes.size()) return absl::OkStatus();
  return InvalidArgument(field, " must be a candidate before, got ", node);
}

absl::Status CheckParent(const TraceTree& tree, int parent_slot,
                         const TraceCandidate& event) {
  if (event.parent == kTraceRoot) {
    if (event.step == 1) return absl::OkStatus();
    return InvalidArgument("step must be 1 after the root, got ", event.step);
  }
  RETURN_IF_ERROR(CheckNode(tree, "parent", event.parent));
  const TraceCandidate& parent = tree.nodes[event.parent].candidate;
  if (parent.fate != CandidateFate::kKept) {
    return InvalidArgument("parent must be a candidate that was kept, ",
                           event.parent, " was ", Name(parent.fate));
  }
  if (event.step != parent.step + 1) {
    return InvalidArgument("step must be ", parent.step + 1, " after node ",
                           event.parent, ", got ", event.step);
  }
  if (event.parent_slot != parent_slot) {
    return InvalidArgument("parent_slot must be ", parent_slot, ", where node ",
                           event.parent, " lives, got ", event.parent_slot);
  }
  return absl::OkStatus();
}

absl::Status CheckCandidate(const TraceTree& tree, int parent_slot,
                            const TraceCandidate& event) {
  if (event.node != tree.nodes.size()) {
    return InvalidArgument("node must be ", tree.nodes.size(), ", got ",
                           event.node);
  }
  RETURN_IF_ERROR(CheckParent(tree, parent_slot, event));
  // A speculating sample gets several tokens per result, each with a step
  // number of its own.
  if (event.step < tree.num_steps() && tree.request.strategy != kSamples) {
    return InvalidArgument("step must be ", tree.num_steps(),
                           " or the one after it, got ", event.step);
  }
  if (event.parent_slot < 0 || event.parent_slot >= kMaxSlots) {
    return InvalidArgument("parent_slot must be in [0, ", kMaxSlots, "), got ",
                           event.parent_slot);
  }
  if (event.slot.has_value() != (event.fate == CandidateFate::kKept)) {
    return InvalidArgument("slot must be there exactly if what is \"kept\"");
  }
  if (event.slot && (*event.slot < 0 || *event.slot >= kMaxSlots)) {
    return InvalidArgument("slot must be in [0, ", kMaxSlots, "), got ",
                           *event.slot);
  }
  if (event.score.has_value() != (event.fate == CandidateFate::kFinished)) {
    return InvalidArgument(
        "score must be there exactly if what is \"finished\"");
  }
  return absl::OkStatus();
}

// Checks a hypothesis. `field` is its name in errors: "hypotheses[0]".
absl::Status CheckHypothesis(const TraceTree& tree, const std::string& field,
                             const TraceHypothesis& hypothesis) {
  RETURN_IF_ERROR(CheckNode(tree, field + ".node", hypothesis.node));
  const CandidateFate fate = tree.nodes[hypothesis.node].candidate.fate;
  if (fate == CandidateFate::kPruned) {
    return InvalidArgument(field, ".node must be a candidate that ",
                           "finished or was kept, got ", hypothesis.node);
  }
  // A kept node ends a hypothesis only if the request reached its deadline, or
  // as "stop" if its text then ends with a complete stop string.
  const std::string_view deadline = NameOf(FinishReason::kDeadline);
  const bool is_at_deadline = hypothesis.finish_reason == deadline;
  const bool may_be = fate == CandidateFate::kKept
                          ? is_at_deadline || hypothesis.finish_reason ==
                                                  NameOf(FinishReason::kStop)
                          : !is_at_deadline;
  if (may_be) return absl::OkStatus();
  return InvalidArgument(field, ".finish_reason must be \"", deadline,
                         "\" or \"stop\" if its node was kept, and not \"",
                         deadline, "\" if it finished; node ", hypothesis.node,
                         " was ", Name(fate), ", got ",
                         ShownInQuotes(hypothesis.finish_reason));
}

absl::Status CheckPagesStep(const TraceTree& tree, int step) {
  const int last = tree.pages.empty() ? 0 : tree.pages.back().step;
  const int next = tree.num_steps() + 1;
  if (step > last && step <= next) return absl::OkStatus();
  if (last < next) {
    return InvalidArgument("step must be in (", last, ", ", next, "], got ",
                           step);
  }
  // There is no such step before the next candidates.
  if (step > last) {
    return InvalidArgument("step must be at most ", next, ", got ", step);
  }
  return InvalidArgument("step must be above ", last,
                         ", the step of the pages before, got ", step);
}

// Checks a row of legal tokens. `field` is its name in errors: "rows[0]".
absl::Status CheckLegalRow(const TraceTree& tree, const std::string& field,
                           const TraceLegalRow& row) {
  const bool is_root = row.node == kTraceRoot;
  if (!is_root) {
    RETURN_IF_ERROR(CheckNode(tree, field + ".node", row.node));
    if (!tree.nodes[row.node].kept()) {
      return InvalidArgument(field, ".node must be a candidate that was kept, ",
                             "got ", row.node);
    }
  }
  if (!(is_root ? tree.first : tree.nodes[row.node].children).empty()) {
    return InvalidArgument(field,
                           ".node must have no candidates after it yet, "
                           "got ",
                           row.node);
  }
  if (tree.LegalAfter(row.node) != nullptr) {
    return InvalidArgument(field, ".node must be another of each, got ",
                           row.node, " twice");
  }
  const std::pair<std::string_view, std::pair<int, int>> least[] = {
      {".state", {row.state, 0}},
      {".room", {row.room, 1}},
      {".num_legal", {row.num_legal, 0}}};
  for (const auto& [name, bound] : least) {
    const auto& [value, min] = bound;
    if (value >= min) continue;
    return InvalidArgument(field, name, " must be at least ", min, ", got ",
                           value);
  }
  if (row.legal_log_mass && !(*row.legal_log_mass <= 0)) {
    return InvalidArgument(field, ".legal_log_mass must be at most 0, got ",
                           *row.legal_log_mass);
  }
  return absl::OkStatus();
}

// Checks that a token may follow those that follow a node already.
absl::Status CheckIsLegal(const TraceLegalRow& row,
                          const std::unordered_set<TokenId>& before,
                          TokenId token) {
  if (before.contains(token) || std::ssize(before) < row.num_legal) {
    return absl::OkStatus();
  }
  return InvalidArgument("parent must have at most ",
                         Pluralize(row.num_legal, "token"),
                         " after it, its num_legal, got ", before.size() + 1);
}

absl::Status CheckNextStep(const TraceTree& tree, int step) {
  if (step == tree.num_steps() + 1) return absl::OkStatus();
  return InvalidArgument("step must be ", tree.num_steps() + 1, ", got ", step);
}

}  // namespace

std::vector<int> TraceTree::Path(int node) const {
  std::vector<int> path;
  for (; node != kTraceRoot; node = nodes[node].candidate.parent) {
    path.push_back(node);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

const TraceLegalRow* TraceTree::LegalAfter(int node) const {
  const std::optional<TraceLegalRow>& row =
      node == kTraceRoot ? first_legal : nodes[node].legal;
  return row ? &*row : nullptr;
}

absl::Status TraceTrees::Add(TraceEvent event) {
  const RequestId id = RequestOf(event);
  const bool begins = std::holds_alternative<TraceRequest>(event);
  const auto known = open_.find(id);
  if (begins && known != open_.end()) {
    return InvalidArgument("request ", id, " begins twice");
  }
  if (!begins && known == open_.end()) {
    return InvalidArgument("request ", id, " has not begun");
  }
  if (begins) {
    open_[id].tree = &trees_.emplace_back();
  } else if (known->second.tree->end) {
    return InvalidArgument("request ", id, " has ended");
  }
  return std::visit([&](auto& e) { return AddTo(open_[id], std::move(e)); },
                    event);
}

int TraceTrees::Open::SlotOf(int node) const {
  const auto found = moved.find(node);
  if (found != moved.end()) return found->second;
  const bool is_there = node >= 0 && node < tree->nodes.size();
  return is_there ? tree->nodes[node].candidate.slot.value_or(0) : 0;
}

absl::Status TraceTrees::AddTo(Open& open, TraceRequest event) {
  open.tree->request = std::move(event);
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TraceCandidate event) {
  TraceTree& tree = *open.tree;
  RETURN_IF_ERROR(CheckCandidate(tree, open.SlotOf(event.parent), event));
  std::unordered_set<TokenId>* after = nullptr;
  if (const TraceLegalRow* const row = tree.LegalAfter(event.parent)) {
    after = &open.legal[event.parent];
    RETURN_IF_ERROR(CheckIsLegal(*row, *after, event.token));
  }
  if (event.slot) {
    int& newest = open.newest_steps[*event.slot];
    if (newest >= event.step) {
      return InvalidArgument("slot ", *event.slot, " is taken in step ",
                             event.step);
    }
    newest = event.step;
  }
  if (after != nullptr) after->insert(event.token);
  if (event.step > tree.num_steps()) tree.steps.emplace_back();
  tree.num_slots = std::max(
      {tree.num_slots, event.parent_slot + 1, event.slot.value_or(0) + 1});
  tree.steps[event.step - 1].push_back(event.node);
  (event.parent == kTraceRoot ? tree.first : tree.nodes[event.parent].children)
      .push_back(event.node);
  tree.nodes.push_back({.candidate = std::move(event), .children = {}});
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TracePages event) {
  TraceTree& tree = *open.tree;
  RETURN_IF_ERROR(CheckPagesStep(tree, event.step));
  for (size_t i = 0; i < event.slots.size(); ++i) {
    const int node = event.slots[i].node;
    if (node == kTraceRoot) continue;
    RETURN_IF_ERROR(CheckNode(tree, Concat("slots[", i, "].node"), node));
  }
  tree.pages.push_back(std::move(event));
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TraceEnd event) {
  TraceTree& tree = *open.tree;
  if (event.error && !event.hypotheses.empty()) {
    return InvalidArgument("hypotheses must be empty after an error, there ",
                           "are ", event.hypotheses.size());
  }
  std::unordered_set<int> told;
  for (size_t i = 0; i < event.hypotheses.size(); ++i) {
    const TraceHypothesis& hypothesis = event.hypotheses[i];
    const std::string field = Concat("hypotheses[", i, "]");
    RETURN_IF_ERROR(CheckHypothesis(tree, field, hypothesis));
    if (told.insert(hypothesis.node).second) continue;
    return InvalidArgument(field, ".node must be another of each, got ",
                           hypothesis.node, " twice");
  }
  // From worst to best, so that the best path is set last.
  for (int rank = static_cast<int>(event.hypotheses.size()) - 1; rank >= 0;
       --rank) {
    const int last = event.hypotheses[rank].node;
    tree.nodes[last].end_of = rank;
    for (const int node : tree.Path(last)) tree.nodes[node].path_of = rank;
  }
  tree.end = std::move(event);
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TracePreempted event) {
  TraceTree& tree = *open.tree;
  RETURN_IF_ERROR(CheckNextStep(tree, event.step));
  for (size_t i = 0; i < event.nodes.size(); ++i) {
    const int node = event.nodes[i];
    const std::string field = Concat("nodes[", i, "]");
    RETURN_IF_ERROR(CheckNode(tree, field, node));
    if (tree.nodes[node].kept()) continue;
    return InvalidArgument(field, " must be a candidate that was kept, got ",
                           node);
  }
  open.moved.clear();
  open.newest_steps.clear();
  for (size_t i = 0; i < event.nodes.size(); ++i) {
    const int node = event.nodes[i];
    const int slot = static_cast<int>(i);
    open.moved[node] = slot;
    open.newest_steps[slot] = tree.nodes[node].candidate.step;
  }
  tree.preemptions.push_back({std::move(event), std::nullopt});
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TraceResumed event) {
  TraceTree& tree = *open.tree;
  RETURN_IF_ERROR(CheckNextStep(tree, event.step));
  if (tree.preemptions.empty() || tree.preemptions.back().resumed) {
    return InvalidArgument("a request resumes that was not preempted");
  }
  tree.preemptions.back().resumed = event;
  return absl::OkStatus();
}

absl::Status TraceTrees::AddTo(Open& open, TraceLegal event) {
  TraceTree& tree = *open.tree;
  std::unordered_set<int> told;
  for (size_t i = 0; i < event.rows.size(); ++i) {
    const TraceLegalRow& row = event.rows[i];
    const std::string field = Concat("rows[", i, "]");
    RETURN_IF_ERROR(CheckLegalRow(tree, field, row));
    if (told.insert(row.node).second) continue;
    return InvalidArgument(field, ".node must be another of each, got ",
                           row.node, " twice");
  }
  for (const TraceLegalRow& row : event.rows) {
    (row.node == kTraceRoot ? tree.first_legal : tree.nodes[row.node].legal) =
        row;
  }
  return absl::OkStatus();
}

}  // namespace espalier
