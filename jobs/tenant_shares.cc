#include "jobs/tenant_shares.h"

#include "base/status.h"

namespace espalier::jobs {

absl::Status TenantShares::Check(std::string_view tenant, int64_t count) const {
  const int64_t num_free = limit_ - total_ - count;
  if (num_free < 0) {
    return MarkPermanent(ResourceExhausted("there are ", total_, " ", unit_,
                                           ", and at most ", limit_,
                                           " may be (", option_, ")"));
  }
  if (IsInShare(tenant, count, num_free)) return absl::OkStatus();
  return MarkPermanent(
      ResourceExhausted("this caller has ", HeldBy(tenant), " of ", total_, " ",
                        unit_, ", where at most ", limit_, " may be (", option_,
                        ") and some are kept for others"));
}

bool TenantShares::IsInShareOnceFree(std::string_view tenant,
                                     int64_t count) const {
  return IsInShare(tenant, count, /*num_free=*/0);
}

bool TenantShares::IsInShare(std::string_view tenant, int64_t count,
                             int64_t num_free) const {
  if (tenant.empty()) return true;
  // At most kShare * (num_free + 1), which may be beyond 64 bits.
  return (HeldBy(tenant) + count - 1) / kShare <= num_free;
}

void TenantShares::Take(std::string_view tenant, int64_t count) {
  if (!tenant.empty()) held_[std::string(tenant)] += count;
  total_ += count;
}

void TenantShares::GiveBack(std::string_view tenant, int64_t count) {
  total_ -= count;
  const auto held = held_.find(tenant);
  if (held == held_.end()) return;
  held->second -= count;
  if (held->second == 0) held_.erase(held);
}

int64_t TenantShares::HeldBy(std::string_view tenant) const {
  const auto held = held_.find(tenant);
  return held == held_.end() ? 0 : held->second;
}

}  // namespace espalier::jobs
