/// Loops over bytes compiled twice where that pays: for any machine and for AVX2, chosen at start. AVX2 brings no fused multiply-add, so
/// both give the same bits.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NPU_TRAIN_SIMD __attribute__((target_clones("avx2", "default")))
#else
#define NPU_TRAIN_SIMD
#endif
