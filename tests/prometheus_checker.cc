#include "tests/prometheus_checker.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <set>

#include "base/status.h"

namespace espalier::testing {
namespace {

// Parses the value of `le`, or of a sample.
std::optional<double> Number(const std::string& text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// One family, from its HELP on.
class Family {
 public:
  Family(std::string name, std::string type)
      : name_(std::move(name)), type_(std::move(type)) {}

  absl::Status Add(const std::string& name, const std::string& labels,
                   double value) {
    if (type_ != "histogram") {
      if (name != name_) return InvalidArgument("not of ", name_);
      if (type_ == "counter" && value < 0) return InvalidArgument("negative");
      return absl::OkStatus();
    }
    if (name == name_ + "_bucket") return AddBucket(labels, value);
    if (name == name_ + "_sum") return absl::OkStatus();
    if (name != name_ + "_count") return InvalidArgument("not of ", name_);
    has_count_ = true;
    if (last_bound_ != std::numeric_limits<double>::infinity()) {
      return InvalidArgument("no bucket +Inf");
    }
    return value == last_count_ ? absl::OkStatus()
                                : InvalidArgument("not the count of +Inf");
  }

  absl::Status End() const {
    if (type_ != "histogram" || has_count_) return absl::OkStatus();
    return InvalidArgument(name_, " has no count");
  }

 private:
  absl::Status AddBucket(const std::string& labels, double count) {
    static const std::regex le("[{,]le=\"([^\"]+)\"[,}]");
    std::smatch match;
    if (!std::regex_search(labels, match, le)) return InvalidArgument("no le");
    const std::optional<double> bound = Number(match[1]);
    if (!bound) return InvalidArgument("le is no number");
    if (*bound <= last_bound_) return InvalidArgument("le does not ascend");
    if (count < last_count_) return InvalidArgument("not cumulative");
    last_bound_ = *bound;
    last_count_ = count;
    return absl::OkStatus();
  }

  std::string name_;
  std::string type_;
  double last_bound_ = -std::numeric_limits<double>::infinity();
  double last_count_ = 0;
  bool has_count_ = false;
};

class PrometheusReader {
 public:
  absl::Status ReadLine(const std::string& line) {
    static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static const std::regex type(
        "# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      RETURN_IF_ERROR(End());
      named_ = match[1];
      // OpenMetrics leaves _total out of a counter's name.
      std::string name = *named_;
      if (name.ends_with("_total")) name.resize(name.size() - 6);
      return names_.insert(name).second ? absl::OkStatus()
                                        : InvalidArgument("a family twice");
    }
    if (std::regex_match(line, match, type)) {
      if (!named_ || *named_ != match[1]) return InvalidArgument("no HELP");
      const bool is_total = named_->ends_with("_total");
      if (is_total != (match[2] == "counter")) {
        return InvalidArgument("counters, and they alone, end in _total");
      }
      family_.emplace(*named_, match[2]);
      named_.reset();
      return absl::OkStatus();
    }
    return ReadSample(line);
  }

  absl::Status End() {
    if (named_) return InvalidArgument("no TYPE of ", *named_);
    const absl::Status status = family_ ? family_->End() : absl::OkStatus();
    family_.reset();
    return status;
  }

  PrometheusSamples samples;

 private:
  absl::Status ReadSample(const std::string& line) {
    static const std::regex sample(
        "([a-zA-Z_:][a-zA-Z0-9_:]*)"
        "(\\{[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\\n]|\\\\[\\\\\"n])*\""
        "(,[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\\n]|\\\\[\\\\\"n])*\")*\\})?"
        " ([^ ]+)");
    std::smatch match;
    if (!std::regex_match(line, match, sample)) {
      return InvalidArgument("no sample");
    }
    if (!family_) return InvalidArgument("a sample of no family");
    const std::optional<double> value = Number(match[6]);
    if (!value || !std::isfinite(*value)) return InvalidArgument("no value");
    const std::string key = match[1].str() + match[2].str();
    if (!samples.emplace(key, *value).second) return InvalidArgument("twice");
    return family_->Add(match[1], match[2], *value);
  }

  std::set<std::string> names_;
  std::optional<std::string> named_;  // by HELP, not by TYPE yet
  std::optional<Family> family_;
};

}  // namespace

absl::StatusOr<PrometheusSamples> ReadPrometheus(std::string_view text) {
  PrometheusReader reader;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return InvalidArgument("the last line does not end: ", text);
    }
    const std::string line(text.substr(0, end));
    const absl::Status status = reader.ReadLine(line);
    if (!status.ok()) return Annotate(status, line);
    text.remove_prefix(end + 1);
  }
  RETURN_IF_ERROR(reader.End());
  return std::move(reader.samples);
}

}  // namespace espalier::testing
