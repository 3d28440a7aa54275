// The instruction sets that SIMD sources are compiled for; the best one that
// the CPU has is chosen at run time. Include before any other Highway header.
//
// AVX-512, AVX2 and SSE4 (and NEON, the baseline on Arm) cover the CPUs of the
// last ten years. Others would double compile time: SSSE3 is too old, and the
// newer AVX-512 levels add nothing for float32 arithmetic. SVE is excluded
// because its vectors have no compile-time size, and espalier keeps vectors in
// arrays.
//
// A source that multiplies bytes adds AVX-512 with dot products of bytes, by
// defining ESPALIER_WANT_BYTE_PRODUCTS before it includes this file.
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

// Levels that only newer releases of Highway define.
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

// Highway reads this only when it enumerates targets, after this header.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                               \
  (HWY_SSSE3 | ESPALIER_AVX3_DL | ESPALIER_AVX3_ZEN4 | ESPALIER_AVX3_SPR | \
   HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
