#include "text/jinja/budget.h"

#include <string_view>

#include "text/jinja/error.h"

namespace espalier::jinja {
namespace {

TemplateError TooMuch(std::string_view what, int64_t limit,
                      std::string_view unit, int64_t input_bytes) {
  return TemplateError::OutOf(Concat(what, ": more than the ", limit, " ", unit,
                                     " that a rendering of ", input_bytes,
                                     " bytes of inputs may"));
}

}  // namespace

void Budget::FailSteps() const {
  throw TooMuch("takes too many steps", max_steps_, "steps", input_bytes_);
}

void Budget::FailBytes() const {
  throw TooMuch("takes too much memory", max_bytes_, "bytes", input_bytes_);
}

void Budget::LookAtClock() {
  work_ = 0;
  if (now_() - begin_ <= time_) return;
  throw TemplateError::OutOf(Concat("takes more than ", time_.count(), " ms"));
}

}  // namespace espalier::jinja
