// Speed of tokenization on one core: MB per second of processor time, and
// tokens, of each round, one per line.
//
//   tokenizer_speed PATH ROUNDS < DOCUMENTS
//
// PATH is a tokenizer.json or a SentencePiece model; a document is a line, its
// text a JSON string. benchmarks/text/tokenizer_speed.py runs it beside Hugging
// Face's library.
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

absl::StatusOr<std::vector<std::string>> ReadDocuments() {
  std::vector<std::string> documents;
  for (std::string line; std::getline(std::cin, line);) {
    ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
    documents.emplace_back(value.as_string());
  }
  return documents;
}

absl::Status Run(const std::string& path, int num_rounds) {
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(path));
  ASSIGN_OR_RETURN(const std::vector<std::string> documents, ReadDocuments());
  size_t num_bytes = 0;
  for (const std::string& document : documents) num_bytes += document.size();
  for (int round = 0; round < num_rounds; ++round) {
    const std::clock_t begin = std::clock();
    size_t num_tokens = 0;
    for (const std::string& document : documents) {
      ASSIGN_OR_RETURN(const auto tokens, tokenizer->Encode(document));
      num_tokens += tokens.size();
    }
    const double seconds =
        static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::cout << static_cast<double>(num_bytes) / 1e6 / seconds << " "
              << num_tokens << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = espalier::Run(argv[1], std::atoi(argv[2]));
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
