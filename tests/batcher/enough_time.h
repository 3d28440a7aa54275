// WithTimeFrom: tests of timeouts on a machine that does other things as well.
// What has to be in time there has it, however long that takes.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace espalier::testing {

// Calls `attempt(timeout)`, which returns the longest time that steps took
// which a test answers at once. A failure counts if these had time enough;
// otherwise, on a machine that is busy, there is another attempt with twice the
// time, up to a minute.
template <typename Attempt>
void WithTimeFrom(absl::Duration timeout, const Attempt& attempt) {
  while (true) {
    using Reporter = ::testing::ScopedFakeTestPartResultReporter;
    ::testing::TestPartResultArray results;
    absl::Duration longest;
    {
      const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
      longest = attempt(timeout);
    }
    if (results.size() == 0) return;
    if (longest > timeout / 2 && timeout < absl::Minutes(1)) {
      timeout *= 2;
      continue;
    }
    for (int i = 0; i < results.size(); ++i) {
      const ::testing::TestPartResult& result = results.GetTestPartResult(i);
      ADD_FAILURE_AT(result.file_name(), result.line_number())
          << "with " << timeout << ": " << result.message();
    }
    return;
  }
}

}  // namespace espalier::testing
