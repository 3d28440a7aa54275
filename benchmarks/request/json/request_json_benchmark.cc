// Speed at which a long line becomes a request, or is refused, compared with
// Boost.JSON's parsing of the same line, destruction included.
//
// Columns: the line's kind; its size; MB/s of Boost.JSON and of
// ParseRequestLine, medians of alternating rounds, by processor time; the
// second divided by the first; and milliseconds per MB of ParseRequestLine,
// which a refused line costs other requests.
//
//   request_json_benchmark [MB of a line]
#include <time.h>

#include <boost/json/parse.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"
#include "benchmarks/median.h"
#include "request/json/request_json.h"

namespace espalier {
namespace {

constexpr int kRounds = 9;
constexpr RequestLineLimits kAll = {.max_list_elements = int64_t{1} << 40};

size_t num_bytes = 15'000'000;

std::string ListOf(const std::string& item) {
  std::string list = "[" + item;
  while (list.size() < num_bytes) list += "," + item;
  return list + "]";
}

std::string Params(const std::string& field, const std::string& value) {
  return R"({"id": 1, "prompt_tokens": [1], "params": {")" + field +
         "\": " + value + "}}";
}

long long checksum = 0;  // so that nothing is left out

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

template <typename Body>
double SecondsOf(const Body& body) {
  const double start = ProcessorSeconds();
  body();
  return ProcessorSeconds() - start;
}

void Report(const char* name, const std::string& line,
            const RequestLineLimits& limits = kAll) {
  std::vector<double> boost_times, times;
  for (int round = 0; round < kRounds; ++round) {
    boost_times.push_back(SecondsOf([&] {
      json::error_code error;
      checksum += json::parse(line, error).is_object();
    }));
    times.push_back(SecondsOf(
        [&] { checksum += ParseRequestLine(line, limits).body.ok(); }));
  }
  const double megabytes = 1e-6 * static_cast<double>(line.size());
  const double boost_time = Median(boost_times), time = Median(times);
  std::printf("%-36s %5.1f MB %7.0f %7.0f MB/s %6.2f %7.2f ms/MB\n", name,
              megabytes, megabytes / boost_time, megabytes / time,
              boost_time / time, 1e3 * time / megabytes);
}

void ReportAll() {
  std::printf("%-36s %8s %7s %7s %11s\n", "", "", "Boost", "ours", "ratio");
  Report("prompt_tokens of one digit",
         R"({"prompt_tokens": )" + ListOf("7") + "}");
  Report("prompt_tokens of five digits",
         R"({"prompt_tokens": )" + ListOf(" 31999") + "}");
  Report("bad_words_ids", Params("bad_words_ids", ListOf("[317, 2941]")));
  Report("allowed_sequences",
         Params("allowed_sequences", ListOf("[317,2941,12,5830,77,262]")));
  std::string biases = "{\"7\": 0.5";
  for (int i = 0; biases.size() < num_bytes; ++i) {
    biases += ", \"" + std::to_string(i) + "\": -1.25";
  }
  Report("logit_bias", Params("logit_bias", biases + "}"));
  Report("prompt", R"({"prompt": ")" + std::string(num_bytes, 'a') + "\"}");
  Report("a list beyond the limit", Params("stop_token_ids", ListOf("31999")),
         {});
  Report("lists beyond the limit", Params("bad_words_ids", ListOf("[7]")), {});
  Report("lists of two beyond the limit",
         Params("bad_words_ids", ListOf("[7,8]")), {});
  Report("lists of lists beyond the limit",
         Params("bad_words_ids", ListOf("[[7]]")), {});
  Report("an unknown field", R"({"id": 1, "x": )" + ListOf("31999") + "}");
  Report("no end", R"({"id": 1, "prompt_tokens": )" + ListOf("31999"));
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  if (argc > 1) {
    espalier::num_bytes = static_cast<size_t>(1e6 * std::atof(argv[1]));
  }
  espalier::ReportAll();
  return espalier::checksum < 0;
}
