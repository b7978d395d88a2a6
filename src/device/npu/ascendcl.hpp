// The AscendCL functions (from CANN's library) that run offline models. They are declared here and looked up at run time, so that a build
// needs no CANN. Source: CANN's API reference, "AscendCL API (C&C++)", https://www.hiascend.com/document; editions 6.0.1 to 9.0 agree on
// these functions. Not yet run with CANN itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace npu_train::detail::acl {

/// aclmdlIODims: the sizes of a tensor, batch first; -1 is a free size.
struct Dims {
  char name[128];
  size_t count;
  int64_t sizes[128];
};

/// aclmdlBatch: the batch sizes that a model was compiled for.
struct Batches {
  size_t count;
  uint64_t sizes[128];
};

// aclmdlDesc, aclmdlDataset, aclDataBuffer: opaque.
struct Desc;
struct Dataset;
struct Buffer;
using Context = void*;

constexpr int kSuccess = 0;
constexpr int kRepeatedInit = 100002;  // ACL_ERROR_REPEAT_INITIALIZE: aclInit was already called in this process
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;  // aclrtMemcpyKind
constexpr int kHugePagesFirst = 0;                                        // aclrtMemMallocPolicy: ACL_MEM_MALLOC_HUGE_FIRST
constexpr int kRunsOnDevice = 0;    // aclrtRunMode: ACL_DEVICE, if the program itself runs on the chip (Atlas 200I)
constexpr int kWithStaticAipp = 1;  // aclmdlInputAippType: ACL_DATA_WITH_STATIC_AIPP
constexpr const char* kBatchInput = "ascend_mbatch_shape_data";  // ACL_DYNAMIC_TENSOR_NAME: the input that selects the batch size

/// AscendCL's functions under descriptive names. Functions returning int return kSuccess or an error code.
struct Functions {
  int (*init)(const char* config);
  int (*finalize)();
  const char* (*recent_error)();
  Buffer* (*create_buffer)(void* data, size_t bytes);
  int (*destroy_buffer)(const Buffer*);

  int (*set_device)(int32_t device);
  int (*reset_device)(int32_t device);
  int (*device_count)(uint32_t* count);
  int (*run_mode)(int* mode);
  int (*create_context)(Context* context, int32_t device);
  int (*destroy_context)(Context context);
  int (*current_context)(Context* context);
  int (*set_context)(Context context);
  int (*allocate)(void** memory, size_t bytes, int policy);
  int (*release)(void* memory);
  int (*copy)(void* to, size_t room, const void* from, size_t bytes, int kind);

  int (*load)(const char* path, uint32_t* model);
  int (*unload)(uint32_t model);
  Desc* (*create_desc)();
  int (*destroy_desc)(Desc*);
  int (*get_desc)(Desc*, uint32_t model);
  size_t (*input_count)(Desc*);
  size_t (*output_count)(Desc*);
  size_t (*input_bytes)(Desc*, size_t index);  // bytes for the largest batch
  size_t (*output_bytes)(Desc*, size_t index);
  int (*input_dims)(const Desc*, size_t index, Dims*);  // with AIPP, the sizes of the tensor of image bytes
  int (*output_dims)(const Desc*, size_t index, Dims*);
  int (*input_type)(const Desc*, size_t index);  // value of aclDataType
  int (*output_type)(const Desc*, size_t index);
  const char* (*input_name)(const Desc*, size_t index);
  const char* (*output_name)(const Desc*, size_t index);
  int (*aipp_type)(uint32_t model, size_t index, int* type, size_t* attached);
  int (*batches)(const Desc*, Batches*);
  int (*set_batch)(uint32_t model, Dataset* inputs, size_t index, uint64_t batch);
  Dataset* (*create_dataset)();
  int (*destroy_dataset)(const Dataset*);
  int (*add_buffer)(Dataset*, Buffer*);
  int (*execute)(uint32_t model, const Dataset* inputs, Dataset* outputs);
};

/// Returns the library, which is loaded at the first call and stays loaded. Error(Device) if it is not found, cannot be loaded or lacks a
/// function; a later call tries again.
const Functions& functions();

/// Returns the file names to try, in search order: only NPU_TRAIN_ASCENDCL (a file or its folder) if set; otherwise the bare name for the
/// system's loader, then CANN's usual locations.
std::vector<std::string> places();

/// Throws an Error "failed with 145002: text of the library; hint: ..." unless `code` is kSuccess. Its kind is OutOfMemory if the code
/// means exhausted memory.
void must(int code, const std::string& call, const std::string& hint = "");

/// Logs a failure as a warning instead of throwing, for destructors.
void attempt(int code, const char* call) noexcept;

}  // namespace npu_train::detail::acl
