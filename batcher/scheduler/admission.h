// Admission: the requests that wait, and the choice of the one that runs next.
// It owns the queue, from Push until a request starts or is taken out. The next
// one is the preempted group or the waiting request with the first turn; it
// comes in when it fits beside the running groups: its first pages in the pool,
// its worst case in the limits of a step (admission_limits.h). One that does
// not fit holds up all later ones.
//
//   ASSIGN_OR_RETURN(const RequestNeeds needs, admission.Fit(&prepared));
//   admission.Push({turn, std::move(prepared), needs, done});
//   ...
//   while (RunningGroup* next = admission.AdmitNext()) ...  // plans it
//
// It ends no running group and plans no rows. A request that runs alone is
// always admitted.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "batcher/scheduler/admission_limits.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/timed_stats.h"
#include "batcher/scheduler/waiting_requests.h"
#include "beam/prepared_request.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"
#include "request/request.h"

namespace espalier {

class Admission {
 public:
  // `tree` is null if requests share no pages. All pointers, and the trace of
  // `options`, outlive this and the groups.
  Admission(const ModelDescription& model, const SchedulerOptions& options,
            PagePool* pool, PrefixTree* tree, RunningGroups* groups,
            TimedStats* counts);

  // Largest number of tokens fed in one step, within the limits.
  int max_step_tokens() const { return limits_.max_step_tokens(); }
  const WaitingRequests& waiting() const { return waiting_; }

  // Lowers the draft length of a request to fit the limits, and returns its
  // worst case. Errors: as AdmissionLimits::CheckFits.
  absl::StatusOr<RequestNeeds> Fit(PreparedRequest* prepared) const;

  // While it is closed, preempted groups resume, and no request starts.
  void SetOpen(bool is_open) { is_open_ = is_open; }
  // The weights that requests start with (Result::weights_version).
  void SetWeightsVersion(int64_t version) { weights_version_ = version; }

  // As in WaitingRequests.
  void Push(WaitingRequest request) { waiting_.Push(std::move(request)); }
  std::optional<WaitingRequest> Take(RequestId id) { return waiting_.Take(id); }
  std::vector<WaitingRequest> TakeAll() { return waiting_.TakeAll(); }

  // Returns the pages that must be available for the next group or request to
  // run now: what it takes until it decodes, beside what running groups take
  // soon. Unset if this exceeds `num_available`, if it may not run for another
  // reason, or if there is none.
  std::optional<int64_t> NumPagesForNext(int64_t num_available);
  bool NextFits() {
    return NumPagesForNext(pool_->num_available()).has_value();
  }

  // Resumes the next group or starts the next request, and returns its group;
  // null if none fits now. A request ends if memory lacks for its group, and
  // the one after it is tried. Throws std::bad_alloc if a group cannot resume;
  // then nothing has changed.
  RunningGroup* AdmitNext();

 private:
  bool MayStart() const { return is_open_ && !waiting_.empty(); }
  // Returns the group that resumes before any request starts; null if there is
  // none.
  RunningGroup* NextToResume();
  // As NumPagesForNext, for a request that takes `num_pages` until it decodes,
  // minus the pages of its source and prompt that it can share.
  std::optional<int64_t> NumPagesFor(const RequestNeeds& needs,
                                     int64_t num_pages, const Request& request,
                                     const PrefixRoots& roots,
                                     int64_t source_length,
                                     int64_t num_available);
  // Returns null if the request ended for lack of memory.
  RunningGroup* Start(WaitingRequest next);

  const AdmissionLimits limits_;
  TraceSink* const trace_;
  PagePool* const pool_;
  PrefixTree* const tree_;
  RunningGroups* const groups_;
  TimedStats* const counts_;
  WaitingRequests waiting_;
  bool is_open_ = true;
  int64_t weights_version_ = 0;
};

}  // namespace espalier
