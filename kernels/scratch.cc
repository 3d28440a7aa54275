#include "kernels/scratch.h"

#include <array>

#include "kernels/aligned_vector.h"

namespace espalier {

float* Scratch(ScratchUse use, size_t size) {
  thread_local std::array<AlignedVector<float>,
                          static_cast<size_t>(ScratchUse::kCount)>
      buffers;
  AlignedVector<float>& buffer = buffers[static_cast<size_t>(use)];
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace espalier
