// A strict parser of Prometheus' exposition format 0.0.4, for tests: any
// collector accepts what it accepts.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace espalier::testing {

// Values by sample, "name{label="value",...}" as it is written.
using PrometheusSamples = std::map<std::string, double>;

// Errors: kInvalidArgument with the line and the fault: a name, a label, an
// escape or a value; a family without HELP and TYPE in this order, or in two
// places, where a and a_total are one family; a duplicate sample; a counter
// that does not end in _total or is negative; a histogram whose buckets are not
// cumulative and ascending, up to +Inf, or disagree with its count; text after
// the last line break.
absl::StatusOr<PrometheusSamples> ReadPrometheus(std::string_view text);

}  // namespace espalier::testing
