// Loads an HTTP server, politely or not (load_options.h).
#include <cstdio>

#include "benchmarks/http/load.h"
#include "benchmarks/http/load_options.h"

int main(int argc, char** argv) {
  using namespace espalier::http_load;
  const auto options = ReadLoadOptions(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n%s", options.status().ToString().c_str(), kUsage);
    return 2;
  }
  Load load(*options);
  std::puts(load.Run().ToJson(*options).c_str());
  return 0;
}
