// Which drafted paths of a beam search a step feeds, and in which rows: row i
// continues beam ranks[i] by drafts[i] (PlanSelection::ranks). A beam without a
// path has a row of its own token alone.
//
// A step goes on behind another only if all beams are on paths. So where not
// all have room, those that were pruned on the way are left out first: the
// shorter before the longer, and of equals the less probable; then the last
// step of all.
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

struct DraftRows {
  std::vector<int> ranks;  // ascending, every beam at least once
  std::vector<std::vector<TokenId>> drafts;

  bool empty() const { return ranks.empty(); }
  // Tokens that each row feeds: one, and its drafts.
  std::vector<int> num_tokens() const;
  // Of all rows, beside one token of each of `num_beams` beams.
  int num_drafted(int num_beams) const;
};

// Without what comes behind a token of `ending`, ascending, and that itself: no
// beam goes on there.
std::vector<BeamPath> CutAtEnds(std::vector<BeamPath> paths,
                                std::span<const TokenId> ending);

// As many of `paths` as fit, in which beams are [0, num_beams); empty if none
// does. Fewer rows, and shorter ones, fit where more do, so `fits` is called as
// often as lengths and paths can be halved.
DraftRows ChooseDraftRows(std::vector<BeamPath> paths, int num_beams,
                          const std::function<bool(const DraftRows&)>& fits);

}  // namespace espalier
