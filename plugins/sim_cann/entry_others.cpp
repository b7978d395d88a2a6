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

// The old path: operators by the name of their type, with tensors and attributes that describe themselves. None is played; what is kept
// is for the error.
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

SIM_CANN_ENTRY int aclopCompileAndExecute(const char* type, int inputs, const void* const in[], const void* const*, int outputs,
                                          const void* const out[], const void* const*, const void* attributes, int, int, const char*, void*) {
  return fail(kOperatorNotFound, std::string("EZ3003: sim_cann plays no operators of the old path (aclopCompileAndExecute): ") + type + "(" +
                                     list(inputs, in) + ") -> (" + list(outputs, out) + ")" +
                                     (attributes == nullptr ? "" : static_cast<const Attributes*>(attributes)->text));
}
SIM_CANN_ENTRY int aclopCompileAndExecuteV2(const char* type, int inputs, const void* const in[], const void* const*, int outputs,
                                            const void* const out[], const void* const*, const void* attributes, int, int, const char*,
                                            void*) {
  return aclopCompileAndExecute(type, inputs, in, nullptr, outputs, out, nullptr, attributes, 0, 0, nullptr, nullptr);
}
