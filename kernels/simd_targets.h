// The instruction sets our SIMD sources are compiled for; the best one the CPU
// has is picked at run time. Include before any Highway header.
//
// AVX-512, AVX2 and SSE4 (and NEON, the baseline on Arm) cover the CPUs of the
// last ten years. The others would double compile time: SSSE3 is too old, and
// the newer AVX-512 levels add nothing that float32 arithmetic uses.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
