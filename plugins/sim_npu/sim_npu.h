/* What the simulated NPU's shared object offers beside its registrations with libtorch: plain C, so that it is found with dlsym and no
 * compiler has to match. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NPU_TRAIN_SIM_ABI = 2 };

typedef struct {
  const char* soc;           /* 910A, 910B1, 910B4, 310P */
  int32_t devices;           /* 1 to 64 */
  int64_t hbm_bytes;         /* memory of each */
  int32_t saturate;          /* 1: an overflow gives the largest number and sets the float status; 0: inf and NaN as in IEEE 754 */
  int32_t bf16;              /* 1: has units for bf16; 0: an operator on bf16 fails */
  int32_t unsupported;       /* operators without a kernel on the device: 0 run them, 1 run them and warn once each, 2 refuse them */
  void (*warn)(const char*); /* may be null */
} npu_train_sim_options;

typedef struct {
  uint64_t ops;            /* operators that ran on the device */
  uint64_t cpu_fallbacks;  /* of these, those without a kernel on the SoC, which a real one would run on the host */
  uint64_t recompilations; /* operators in shapes and dtypes that were not seen before */
  uint64_t host_reads;     /* copies from the device to the host, .item() included */
  uint64_t host_read_bytes;
} npu_train_sim_counters;

/* The functions' names and types, for dlsym. `start` gives null, or what is wrong; it works once per process. */
typedef int32_t npu_train_sim_abi_fn(void);
typedef const char* npu_train_sim_start_fn(const npu_train_sim_options*);
typedef void npu_train_sim_read_counters_fn(npu_train_sim_counters*);

#pragma GCC visibility push(default)
npu_train_sim_abi_fn npu_train_sim_abi;
npu_train_sim_start_fn npu_train_sim_start;
npu_train_sim_read_counters_fn npu_train_sim_read_counters;
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
