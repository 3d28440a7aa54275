#include "beam/drafts/draft_replay.h"

#include <utility>

#include "base/check.h"

namespace espalier {

DraftReplay::DraftReplay(int num_beams, PathRows rows)
    : num_beams_(num_beams),
      drafts_(std::move(rows)),
      tree_(num_beams, drafts_.ranks, drafts_.drafts),
      nodes_(tree_.Roots()) {}

void DraftReplay::Follow(std::span<const Continuation> beams) {
  std::vector<int> next;
  for (const Continuation& beam : beams) {
    next.push_back(tree_.Child(nodes_.at(beam.parent_rank), beam.token));
    CHECK_GE(next.back(), 0) << "no path goes on with " << beam.token;
  }
  nodes_ = std::move(next);
  ++num_steps_followed_;
  num_tokens_followed_ += static_cast<int>(beams.size());
}

std::vector<int> DraftReplay::rows() const {
  std::vector<int> rows;
  for (const int node : nodes_) rows.push_back(tree_.row(node));
  return rows;
}

}  // namespace espalier
