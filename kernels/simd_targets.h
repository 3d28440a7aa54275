// The instruction sets our SIMD sources are compiled for; the best one the CPU
// has is picked at run time. Include before any other Highway header.
//
// AVX-512, AVX2 and SSE4 (and NEON, the baseline on Arm) cover the CPUs of the
// last ten years. The others would double compile time: SSSE3 is too old, and
// the newer AVX-512 levels add nothing that float32 arithmetic uses. SVE is
// out because its vectors have no size known to the compiler, and ours live in
// arrays.
//
// A source that multiplies bytes asks for one more, the AVX-512 that has dot
// products of bytes, by defining ESPALIER_WANT_BYTE_PRODUCTS before it includes
// this.
#pragma once

#ifdef ESPALIER_WANT_BYTE_PRODUCTS
#define HWY_WANT_AVX3_DL
#endif
#include "hwy/detect_targets.h"
#ifdef ESPALIER_WANT_BYTE_PRODUCTS
#define ESPALIER_AVX3_DL 0
#else
#define ESPALIER_AVX3_DL HWY_AVX3_DL
#endif

// Levels that newer releases of Highway know.
#ifdef HWY_AVX3_ZEN4
#define ESPALIER_AVX3_ZEN4 HWY_AVX3_ZEN4
#else
#define ESPALIER_AVX3_ZEN4 0
#endif
#ifdef HWY_AVX3_SPR
#define ESPALIER_AVX3_SPR HWY_AVX3_SPR
#else
#define ESPALIER_AVX3_SPR 0
#endif

// Highway looks at this only when it enumerates targets, after this header.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                               \
  (HWY_SSSE3 | ESPALIER_AVX3_DL | ESPALIER_AVX3_ZEN4 | ESPALIER_AVX3_SPR | \
   HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
