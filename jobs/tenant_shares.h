// TenantShares: a limit of a store that its tenants share. One may hold at most
// kShare times as much as is free (the dynamic threshold of Choudhury and
// Hahne, 1998, as the engine's queue does): one that is alone gets all but a
// ninth, and whatever it does another finds room.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace espalier::jobs {

class TenantShares {
 public:
  static constexpr int64_t kShare = 8;

  // "files" and "--max-files", for errors.
  TenantShares(std::string_view unit, std::string_view option, int64_t limit)
      : unit_(unit), option_(option), limit_(limit) {}

  // Checks that the tenant may take so many. An empty name has no share, and
  // may take all that is free.
  // Errors: kResourceExhausted naming the limit, and what is held.
  absl::Status Check(std::string_view tenant, int64_t count) const;
  // True if Check would hold once just so many were free.
  bool IsInShareOnceFree(std::string_view tenant, int64_t count) const;
  int64_t HeldBy(std::string_view tenant) const;
  // Whatever the limit.
  void Take(std::string_view tenant, int64_t count);
  void GiveBack(std::string_view tenant, int64_t count);

 private:
  // `num_free`: after the tenant took them.
  bool IsInShare(std::string_view tenant, int64_t count,
                 int64_t num_free) const;

  const std::string unit_;
  const std::string option_;
  const int64_t limit_;
  int64_t total_ = 0;
  std::map<std::string, int64_t, std::less<>> held_;  // by tenants with some
};

}  // namespace espalier::jobs
