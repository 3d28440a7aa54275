// A message that memory runs out for is not cut in silence.
//
// A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <string>

#include "base/status.h"
#include "tests/replace_operator_new.h"

namespace {

// The allocation that fails, counted from 1; 0: none does.
int64_t failing_allocation = 0;

}  // namespace

void espalier::testing::OnAllocation() {
  if (failing_allocation > 0 && --failing_allocation == 0) {
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

TEST(StatusOutOfMemoryTest, AMessageIsWholeOrNotMade) {
  const std::string context(3000, 'c');
  const std::string whole = context + ": need 7 pages, true " + context;
  int num_failed = 0;
  while (true) {
    std::string message;
    failing_allocation = num_failed + 1;
    try {
      message = Concat(context, ": need ", 7, " pages, ", true, ' ', context);
    } catch (const std::bad_alloc&) {
      ++num_failed;
      continue;
    }
    const bool all_succeeded = failing_allocation > 0;
    failing_allocation = 0;
    EXPECT_EQ(message, whole) << "allocation " << num_failed + 1 << " failed";
    if (all_succeeded || message != whole) break;
    ++num_failed;  // the message did without
  }
  EXPECT_GT(num_failed, 1);
}

}  // namespace
}  // namespace espalier
