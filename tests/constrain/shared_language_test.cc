#include "constrain/shared_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "base/status.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/json_number_language.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

TEST(SharedLanguageTest, TakesTheWorkOfMakingTheLanguage) {
  const SharedLanguage<ByteAutomaton> shared(CanonicalNumbers);
  CompileBudget own;
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton made, CanonicalNumbers(&own));
  CompileBudget budget;
  for (int64_t times = 1; times <= 2; ++times) {
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton* const language,
                         shared.Get(&budget));
    EXPECT_EQ(*language, made);
    EXPECT_EQ(budget.work().steps, times * own.work().steps);
  }
}

TEST(SharedLanguageTest, HasTheLimitsOfMakingTheLanguage) {
  const SharedLanguage<ByteAutomaton> shared(CanonicalNumbers);
  CompileBudget own;
  ASSERT_OK(CanonicalNumbers(&own).status());
  const CompileBudget::Work work = own.work();
  const CompileLimits exact = {.max_states = work.states,
                               .max_table_bytes = work.table_bytes,
                               .max_steps = work.steps};
  CompileBudget enough(exact);
  EXPECT_OK(shared.Get(&enough).status());
  for (int64_t CompileLimits::*const limit :
       {&CompileLimits::max_states, &CompileLimits::max_table_bytes,
        &CompileLimits::max_steps}) {
    CompileLimits less = exact;
    --(less.*limit);
    CompileBudget of_shared(less);
    CompileBudget of_own(less);
    EXPECT_EQ(Message(shared.Get(&of_shared).status()),
              Message(CanonicalNumbers(&of_own).status()));
    EXPECT_TRUE(of_shared.is_exceeded());
  }
}

}  // namespace
}  // namespace espalier
