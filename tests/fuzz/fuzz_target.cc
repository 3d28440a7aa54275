#include "tests/fuzz/fuzz_target.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier::fuzz {

namespace {

// Values are shown by 60 bytes; names of fields lead to them.
constexpr size_t kMaxMessageBytes = 2000;

}  // namespace

std::vector<FuzzTarget>& FuzzTargets() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

bool AddFuzzTarget(std::string_view name, void (*run)(std::string_view)) {
  FuzzTargets().push_back({name, run});
  return true;
}

void CheckBadInput(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument)
      << status.ToString();
  const std::string message = Message(status);
  CHECK(!message.empty());
  CHECK(IsUtf8(message)) << message;
  CHECK_LE(message.size(), kMaxMessageBytes) << message;
}

size_t TakeChoice(std::string_view* input) {
  if (input->empty()) return 0;
  const auto choice = static_cast<unsigned char>(input->front() - '0');
  input->remove_prefix(1);
  return choice;
}

MemoryFile::MemoryFile(std::string_view bytes)
    : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
  CHECK_GE(fd_, 0);
  path_ = Concat("/proc/self/fd/", fd_);
  while (!bytes.empty()) {
    const ssize_t count = write(fd_, bytes.data(), bytes.size());
    CHECK(count > 0) << path_;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

MemoryFile::~MemoryFile() { close(fd_); }

}  // namespace espalier::fuzz
