// CHECK reports programming errors and is not for input validation. If it fails
// it prints its expression and aborts; CHECK_EQ etc. print both values as well,
// evaluated again. With NDEBUG, DCHECK does not evaluate its condition.
//
//   CHECK(count > 0) << "page released twice";
//   CHECK_EQ(rows, plan.rows.size());
#pragma once

#include <sstream>

namespace espalier::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Swallows a stream so that CHECK is a void expression in both branches.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace espalier::internal

#define CHECK(condition)                                                       \
  (condition)                                                                  \
      ? (void)0                                                                \
      : ::espalier::internal::Voidify() &                                      \
            ::espalier::internal::CheckFailure(__FILE__, __LINE__, #condition) \
                .stream()

#define CHECK_EQ(a, b) CHECK((a) == (b)) << (a) << " vs " << (b) << " "
#define CHECK_LT(a, b) CHECK((a) < (b)) << (a) << " vs " << (b) << " "
#define CHECK_LE(a, b) CHECK((a) <= (b)) << (a) << " vs " << (b) << " "
#define CHECK_GE(a, b) CHECK((a) >= (b)) << (a) << " vs " << (b) << " "

#ifdef NDEBUG
#define DCHECK(condition) CHECK(true || (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
