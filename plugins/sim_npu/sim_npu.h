/* Functions of the simulated NPU's shared object, in addition to its registrations with libtorch: plain C, so that dlsym finds them and
 * compilers may differ. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NPU_TRAIN_SIM_ABI = 2 };

typedef struct {
  const char* soc;           /* 910A, 910B1, 910B4, 310P */
  int32_t devices;           /* 1 to 64 */
  int64_t hbm_bytes;         /* memory of each device */
  int32_t saturate;          /* 1: an overflow gives the largest finite number and sets the float status; 0: inf and NaN as in IEEE 754 */
  int32_t bf16;              /* 1: supports bf16; 0: operators on bf16 fail */
  int32_t unsupported;       /* operators without a kernel on the device: 0: run them; 1: run them, warn once each; 2: refuse them */
  void (*warn)(const char*); /* may be null */
} npu_train_sim_options;

typedef struct {
  uint64_t ops;            /* operators that ran on the device */
  uint64_t cpu_fallbacks;  /* of these, operators without a kernel on the SoC, which a real device would run on the host */
  uint64_t recompilations; /* operators with new shapes or dtypes */
  uint64_t host_reads;     /* copies from the device to the host, including .item() */
  uint64_t host_read_bytes;
} npu_train_sim_counters;

/* Names and types of the functions, for dlsym. `start` returns null or an error message; it succeeds once per process. */
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
