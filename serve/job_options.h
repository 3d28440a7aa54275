// JobOptions: files and batches of a server, apart from JobCalls for sources
// that should not read Asio.
#pragma once

#include <string>

#include "jobs/batch_options.h"
#include "jobs/file_store.h"
#include "jobs/record.h"

namespace espalier::serve {

struct JobOptions {
  std::string folder = {};  // empty: there are no files, and no batches
  jobs::FileLimits files = {};
  jobs::BatchOptions batches = {};
  jobs::WarnOfRecord warn = nullptr;  // none: nothing is said
};

}  // namespace espalier::serve
