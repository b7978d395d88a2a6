// What sim_cann refuses by name, and what has no effect: profiling, dumps, logs. torch_npu is linked with these functions, so that all of
// them exist; a function that it looks up by name and that is not here is reported by torch_npu.
#include <cstring>
#include <sstream>
#include <vector>

#include "acl.hpp"

using namespace sim_cann;

#define SIM_CANN_REFUSE(NAME) \
  SIM_CANN_ENTRY int NAME() { return refuse(#NAME); }

// Memory in pieces (expandable segments), memory of other processes.
SIM_CANN_REFUSE(aclrtReserveMemAddress)
SIM_CANN_REFUSE(aclrtReleaseMemAddress)
SIM_CANN_REFUSE(aclrtMallocPhysical)
SIM_CANN_REFUSE(aclrtFreePhysical)
SIM_CANN_REFUSE(aclrtMapMem)
SIM_CANN_REFUSE(aclrtUnmapMem)
SIM_CANN_REFUSE(aclrtMemExportToShareableHandle)
SIM_CANN_REFUSE(aclrtMemImportFromShareableHandle)
SIM_CANN_REFUSE(aclrtMemSetPidToShareableHandle)
SIM_CANN_REFUSE(aclrtDeviceGetBareTgid)
// Code for the chip.
SIM_CANN_REFUSE(aclrtBinaryLoadFromData)
SIM_CANN_REFUSE(aclrtBinaryGetFunction)
SIM_CANN_REFUSE(aclrtGetFunctionAddr)
SIM_CANN_REFUSE(rtDevBinaryRegister)
SIM_CANN_REFUSE(rtFunctionRegister)
SIM_CANN_REFUSE(rtKernelLaunch)
SIM_CANN_REFUSE(rtGetC2cCtrlAddr)
SIM_CANN_REFUSE(aclmdlInitDump)
SIM_CANN_REFUSE(aclmdlSetDump)
SIM_CANN_REFUSE(aclmdlFinalizeDump)

#define SIM_CANN_IGNORE(NAME) \
  SIM_CANN_ENTRY int NAME() { return kSuccess; }

SIM_CANN_IGNORE(MsprofRegisterCallback)
SIM_CANN_IGNORE(MsprofReportAdditionalInfo)
SIM_CANN_IGNORE(MsprofReportApi)
SIM_CANN_IGNORE(MsprofReportCompactInfo)
SIM_CANN_IGNORE(aclAppLog)
SIM_CANN_IGNORE(aclopStartDumpArgs)
SIM_CANN_IGNORE(aclopStopDumpArgs)
SIM_CANN_ENTRY uint64_t MsprofGetHashId(const char*, size_t) { return 0; }
SIM_CANN_ENTRY uint64_t MsprofSysCycleTime() { return 0; }

// The old path: operators by the name of their type, with tensors and attributes that describe themselves. Only those of the float status
// are played; what else is kept is for the error.
namespace {

struct TensorDescription {
  int dtype;
  std::vector<int64_t> sizes;
  int format;
};
struct Buffer {
  void* data;
  size_t size;
};
struct Attributes {
  std::string text;
};

template <class T>
int add(void* to, const char* name, const T& value) {
  std::ostringstream out;
  out << ' ' << name << '=' << value;
  static_cast<Attributes*>(to)->text += out.str();
  return kSuccess;
}

/// The status as a tensor of eight numbers, of which the first is 1 after an overflow.
template <class T>
void write_status(void* to, bool overflow) {
  const T status[8] = {overflow ? T(1) : T(0)};
  std::memcpy(host_address(to, sizeof status), status, sizeof status);
}

/// What an operator of the float status does with its first tensor, or nothing if it is another operator.
std::function<void(void*)> float_status_operator(const std::string& type) {
  if (type == "NPUAllocFloatStatus") return [](void* data) { write_status<float>(data, false); };
  if (type == "NPUGetFloatStatus") return [](void* data) { write_status<float>(data, float_status(current_device())); };
  if (type == "NPUGetFloatStatusV2") return [](void* data) { write_status<int32_t>(data, float_status(current_device())); };
  if (type == "NPUClearFloatStatus" || type == "NPUClearFloatStatusV2") return [](void*) { clear_float_status(current_device()); };
  return {};
}

std::string list(int count, const void* const descriptions[]) {
  std::ostringstream out;
  for (int i = 0; i < count; ++i) {
    const auto* one = static_cast<const TensorDescription*>(descriptions[i]);
    out << (i == 0 ? "" : ", ") << "dtype " << one->dtype << " [";
    for (size_t d = 0; d < one->sizes.size(); ++d) out << (d == 0 ? "" : ", ") << one->sizes[d];
    out << ']';
  }
  return out.str();
}

}  // namespace

SIM_CANN_ENTRY void* aclCreateTensorDesc(int dtype, int count, const int64_t* sizes, int format) {
  return new TensorDescription{dtype, {sizes, sizes + count}, format};
}
SIM_CANN_ENTRY void aclDestroyTensorDesc(const void* description) { delete static_cast<const TensorDescription*>(description); }
SIM_CANN_ENTRY int aclGetTensorDescType(const void* description) { return static_cast<const TensorDescription*>(description)->dtype; }
SIM_CANN_ENTRY int aclGetTensorDescFormat(const void* description) { return static_cast<const TensorDescription*>(description)->format; }
SIM_CANN_ENTRY size_t aclGetTensorDescNumDims(const void* description) {
  return static_cast<const TensorDescription*>(description)->sizes.size();
}
SIM_CANN_ENTRY int aclGetTensorDescDimV2(const void* description, size_t index, int64_t* size) {
  const auto& sizes = static_cast<const TensorDescription*>(description)->sizes;
  if (index >= sizes.size()) return fail(kInvalidParameter, "EE1001: aclGetTensorDescDimV2: there is no such dimension");
  *size = sizes[index];
  return kSuccess;
}
SIM_CANN_IGNORE(aclSetTensorDescName)
SIM_CANN_IGNORE(aclSetTensorFormat)
SIM_CANN_IGNORE(aclSetTensorPlaceMent)
SIM_CANN_IGNORE(aclSetTensorShape)
SIM_CANN_ENTRY void* aclCreateDataBuffer(void* data, size_t size) { return new Buffer{data, size}; }
SIM_CANN_ENTRY int aclDestroyDataBuffer(const void* buffer) {
  delete static_cast<const Buffer*>(buffer);
  return kSuccess;
}
SIM_CANN_ENTRY void* aclopCreateAttr() { return new Attributes; }
SIM_CANN_ENTRY void aclopDestroyAttr(const void* attributes) { delete static_cast<const Attributes*>(attributes); }
SIM_CANN_ENTRY int aclopSetAttrBool(void* to, const char* name, uint8_t value) { return add(to, name, value != 0); }
SIM_CANN_ENTRY int aclopSetAttrInt(void* to, const char* name, int64_t value) { return add(to, name, value); }
SIM_CANN_ENTRY int aclopSetAttrFloat(void* to, const char* name, float value) { return add(to, name, value); }
SIM_CANN_ENTRY int aclopSetAttrString(void* to, const char* name, const char* value) { return add(to, name, value); }
SIM_CANN_ENTRY int aclopSetAttrDataType(void* to, const char* name, int value) { return add(to, name, value); }
SIM_CANN_ENTRY int aclopSetAttrListBool(void* to, const char* name, int, const void*) { return add(to, name, "..."); }
SIM_CANN_ENTRY int aclopSetAttrListFloat(void* to, const char* name, int, const void*) { return add(to, name, "..."); }
SIM_CANN_ENTRY int aclopSetAttrListInt(void* to, const char* name, int, const void*) { return add(to, name, "..."); }
SIM_CANN_ENTRY int aclopSetAttrListListInt(void* to, const char* name, int, const void*, const void*) { return add(to, name, "..."); }

SIM_CANN_ENTRY int aclopCompileAndExecute(const char* type, int inputs, const void* const in[], const void* const in_data[], int outputs,
                                          const void* const out[], void* const out_data[], const void* attributes, int, int, const char*,
                                          void* stream) {
  if (const auto run = float_status_operator(type)) {
    const void* first = inputs > 0 ? in_data[0] : outputs > 0 ? out_data[0] : nullptr;
    enqueue(stream, type, [run, data = first == nullptr ? nullptr : static_cast<const Buffer*>(first)->data] { run(data); });
    return kSuccess;
  }
  return fail(kOperatorNotFound, std::string("EZ3003: sim_cann does not play this operator of the old path (aclopCompileAndExecute): ") +
                                     type + "(" + list(inputs, in) + ") -> (" + list(outputs, out) + ")" +
                                     (attributes == nullptr ? "" : static_cast<const Attributes*>(attributes)->text));
}
SIM_CANN_ENTRY int aclopCompileAndExecuteV2(const char* type, int inputs, void* in[], void* in_data[], int outputs, void* out[],
                                            void* out_data[], void* attributes, int engine, int flags, const char* path, void* stream) {
  return aclopCompileAndExecute(type, inputs, in, in_data, outputs, out, out_data, attributes, engine, flags, path, stream);
}
