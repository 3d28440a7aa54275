// SharedLanguage: a language that many compilations need, made once for all of
// them.
//
//   static const auto* const kNumbers = new SharedLanguage<ByteAutomaton>(
//       [](CompileBudget* budget) { return AnyNumbers(budget); });
//   ASSIGN_OR_RETURN(const ByteAutomaton* const numbers,
//                    kNumbers->Get(budget));
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status.h"
#include "constrain/compile_budget.h"

namespace espalier {

template <typename Language>
class SharedLanguage {
 public:
  // REQUIRES: make(budget) returns a Language within the default limits.
  template <typename Make>
  explicit SharedLanguage(const Make& make)
      : language_([&] {
          CompileBudget budget;
          auto language = make(&budget);
          CHECK(language.ok()) << language.status();
          work_ = budget.work();
          return *std::move(language);
        }()) {}

  // Takes the work of making the language, so that the outcome of a compilation
  // is the same if another one has made it.
  // Errors: kInvalidArgument with a limit of `budget` that it exceeds.
  absl::StatusOr<const Language*> Get(CompileBudget* budget) const {
    RETURN_IF_ERROR(budget->Repeat(work_));
    return &language_;
  }

 private:
  CompileBudget::Work work_;  // before language_, which sets it
  Language language_;
};

}  // namespace espalier
