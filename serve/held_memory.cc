#include "serve/held_memory.h"

#include "base/status.h"

namespace espalier::serve {

absl::StatusOr<HeldMemory::Share> HeldMemory::Take(int64_t num_bytes) {
  if (num_bytes > max_bytes_) {
    return MarkPermanent(ResourceExhausted(
        "the call would hold some ", num_bytes, " bytes, and all calls may ",
        "hold ", max_bytes_, " together (--max-held-bytes)"));
  }
  const int64_t num_held = count_->fetch_add(num_bytes);
  Share share(count_, num_bytes);
  if (num_held <= max_bytes_ - num_bytes) return share;
  return ResourceExhausted("calls and catalogues of items hold some ", num_held,
                           " bytes, and ", num_bytes, " more would be above ",
                           max_bytes_, " (--max-held-bytes); try again later");
}

}  // namespace espalier::serve
