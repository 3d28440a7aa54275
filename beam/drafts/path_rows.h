// ChoosePathRows: the drafted paths of a beam search that a step feeds
// (PathRows, exec_request/step_plan.h).
//
// A later step is evaluated only if all surviving beams are on paths. So if not
// all paths fit, the number of steps is reduced rather than the number of
// paths: all paths, with those that end on the way, are kept up to the largest
// depth that fits. For one step more, the longest and then the most probable
// paths are kept, if at least as many as beams fit.
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

// Truncates paths before the first token in `ending`, ascending, because no
// beam continues after it.
std::vector<BeamPath> CutAtEnds(std::vector<BeamPath> paths,
                                std::span<const TokenId> ending);

// Returns the part of `paths` that fits, for beams [0, num_beams); empty if not
// even one step does. Fewer and shorter rows must fit if more do, because
// `fits` is called in binary searches over lengths and numbers of paths.
PathRows ChoosePathRows(std::vector<BeamPath> paths, int num_beams,
                        const std::function<bool(const PathRows&)>& fits);

}  // namespace espalier
