#include "tests/source_tree.h"

namespace espalier {

std::string SourcePath(const std::string& path) {
  const std::string root = ESPALIER_SOURCE_DIR;
  return path.empty() ? root : root + "/" + path;
}

}  // namespace espalier
