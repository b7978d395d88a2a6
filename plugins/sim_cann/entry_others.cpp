// Functions that sim_cann refuses by name, and functions without an effect: profiling, dumps, logs. All must exist, because torch_npu is
// linked with them. torch_npu itself reports missing functions that it looks up by name.
#include <cstddef>

#include "acl.hpp"

using namespace sim_cann;

#define SIM_CANN_REFUSE(NAME) \
  SIM_CANN_ENTRY int NAME() { return refuse(#NAME); }

// Memory in pieces (expandable segments), and memory of other processes.
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
// Programs for the chip.
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
