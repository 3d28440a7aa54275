// Requests, good and bad, that readers and servers are tried with.
#pragma once

#include <string>
#include <vector>

namespace espalier::http {

struct RequestText {
  int status;         // with which it is refused; 0 for a good one
  std::string bytes;  // good ones end with their request
};

const std::vector<RequestText>& RequestTexts();

}  // namespace espalier::http
