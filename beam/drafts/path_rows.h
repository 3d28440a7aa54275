// Which drafted paths of a beam search a step feeds, and in which rows: row i
// continues beam ranks[i] by drafts[i] (PlanSelection::ranks). A beam without a
// path has a row of its own token alone.
//
// A step goes on after another only if all beams that survive are on paths. So
// where not all have room, fewer steps are drafted rather than fewer paths: as
// many as there is room for all paths of, those that end on the way included,
// and of one more the paths that go furthest and of equals the most probable,
// if there is room for as many as there are beams.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"

namespace espalier {

// A path of the beam of rank `rank`.
struct BeamPath {
  int rank = 0;
  DraftPath path = {};
};

struct PathRows {
  std::vector<int> ranks;  // ascending, every beam at least once
  std::vector<std::vector<TokenId>> drafts;

  bool empty() const { return ranks.empty(); }
  // Tokens that each row feeds: one, and its drafts.
  std::vector<int> num_tokens() const;
  // Of all rows, beside one token of each of `num_beams` beams.
  int num_drafted(int num_beams) const;
};

// Without what comes after a token of `ending`, ascending, and that itself: no
// beam goes on there.
std::vector<BeamPath> CutAtEnds(std::vector<BeamPath> paths,
                                std::span<const TokenId> ending);

// As much of `paths` as fits, in which beams are [0, num_beams); empty if not
// even one step does. Fewer rows, and shorter ones, fit where more do, so
// `fits` is called as often as lengths and paths can be halved.
PathRows ChoosePathRows(std::vector<BeamPath> paths, int num_beams,
                        const std::function<bool(const PathRows&)>& fits);

}  // namespace espalier
