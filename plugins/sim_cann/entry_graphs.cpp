// Graphs of AscendCL (aclmdlRI), with the signatures of acl/acl_rt.h in torch_npu, which looks them up by these names.
#include "acl.hpp"
#include "graphs.hpp"

using namespace sim_cann;

SIM_CANN_ENTRY int aclmdlRICaptureBegin(void* stream, int mode) { return begin_capture(stream, mode); }
SIM_CANN_ENTRY int aclmdlRICaptureEnd(void* stream, void** graph) {
  if (graph == nullptr) return fail(kInvalidParameter, "EE1001: aclmdlRICaptureEnd: the pointer to the graph is null");
  return end_capture(stream, graph);
}
SIM_CANN_ENTRY int aclmdlRICaptureGetInfo(void* stream, int* status, void** graph) {
  if (status == nullptr && graph == nullptr) return fail(kInvalidParameter, "EE1001: aclmdlRICaptureGetInfo: both pointers are null");
  find_capture(stream, status, graph);
  return kSuccess;
}
SIM_CANN_ENTRY int aclmdlRICaptureThreadExchangeMode(int* mode) {
  if (mode == nullptr) return fail(kInvalidParameter, "EE1001: aclmdlRICaptureThreadExchangeMode: the pointer is null");
  return exchange_capture_mode(mode);
}
SIM_CANN_ENTRY int aclmdlRIExecuteAsync(void* graph, void* stream) { return replay(graph, stream); }
SIM_CANN_ENTRY int aclmdlRIDestroy(void* graph) { return destroy_graph(graph); }
SIM_CANN_ENTRY int aclmdlRIGetId(void* graph, uint32_t* id) {
  if (id == nullptr) return fail(kInvalidParameter, "EE1001: aclmdlRIGetId: the pointer is null");
  return id_of_graph(graph, id);
}

#define SIM_CANN_NO_GRAPH(NAME) \
  SIM_CANN_ENTRY int NAME() { return refuse(#NAME); }
// Functions for tasks that are changed between replays, for conditional parts, and for descriptions of a graph.
SIM_CANN_NO_GRAPH(aclmdlRICaptureTaskGrpBegin)
SIM_CANN_NO_GRAPH(aclmdlRICaptureTaskGrpEnd)
SIM_CANN_NO_GRAPH(aclmdlRICaptureTaskUpdateBegin)
SIM_CANN_NO_GRAPH(aclmdlRICaptureTaskUpdateEnd)
SIM_CANN_NO_GRAPH(aclmdlRICondHandleCreate)
SIM_CANN_NO_GRAPH(aclmdlRICondHandleGetCondPtr)
SIM_CANN_NO_GRAPH(aclmdlRIAddCondTask)
SIM_CANN_NO_GRAPH(aclmdlRICaptureToModelRIBegin)
SIM_CANN_NO_GRAPH(aclmdlRIDebugPrint)
SIM_CANN_NO_GRAPH(aclmdlRIDebugJsonPrint)
