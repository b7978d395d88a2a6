/// Loops over bytes compiled twice where that pays: for any machine and for AVX2, chosen at start. AVX2 brings no fused multiply-add, so
/// both give the same bits.
#pragma once

#ifdef __has_feature  // Clang's question
#define NPU_TRAIN_HAS_FEATURE(x) __has_feature(x)
#else
#define NPU_TRAIN_HAS_FEATURE(x) 0
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !NPU_TRAIN_HAS_FEATURE(address_sanitizer) && !NPU_TRAIN_HAS_FEATURE(thread_sanitizer)
#define NPU_TRAIN_SIMD __attribute__((target_clones("avx2", "default")))
#else
#define NPU_TRAIN_SIMD
#endif
