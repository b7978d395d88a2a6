// The old path: functions that describe an operator, and the operators of the float status.
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "acl.hpp"
#include "old_path.hpp"

using namespace sim_cann;

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
  std::map<std::string, std::vector<int64_t>> integers;
  std::map<std::string, float> floats;
  std::string text;  // all attributes as text, for an error
};

std::string list(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return out + "]";
}

int add(void* to, const char* name, const std::string& text) {
  static_cast<Attributes*>(to)->text += std::string(" ") + name + "=" + text;
  return kSuccess;
}
int add_integers(void* to, const char* name, std::vector<int64_t> values) {
  const std::string text = list(values);
  static_cast<Attributes*>(to)->integers[name] = std::move(values);
  return add(to, name, text);
}

/// Writes the status as a tensor of eight numbers, of which the first is 1 after an overflow.
template <class T>
void write_status(const OldCall& call, bool overflow) {
  const T status[8] = {overflow ? T(1) : T(0)};
  std::memcpy(host_address((call.in.empty() ? call.out : call.in).at(0).data, sizeof status), status, sizeof status);
}
void clear_status(const OldCall&) { clear_float_status(current_device()); }

struct Played {
  std::mutex mutex;
  std::map<std::string, OldOperator> operators = {
      {"NPUAllocFloatStatus", [](const OldCall& call) { write_status<float>(call, false); }},
      {"NPUGetFloatStatus", [](const OldCall& call) { write_status<float>(call, float_status(current_device())); }},
      {"NPUGetFloatStatusV2", [](const OldCall& call) { write_status<int32_t>(call, float_status(current_device())); }},
      {"NPUClearFloatStatus", clear_status},
      {"NPUClearFloatStatusV2", clear_status}};
};
Played& played() {
  static auto* all = new Played;
  return *all;
}

std::vector<OldTensor> tensors_of(int count, const void* const descriptions[], const void* const buffers[]) {
  std::vector<OldTensor> out;
  for (int i = 0; i < count; ++i) {
    const auto* one = static_cast<const TensorDescription*>(descriptions[i]);
    const auto* buffer = static_cast<const Buffer*>(buffers[i]);
    out.push_back({one->dtype, one->sizes, buffer == nullptr ? nullptr : buffer->data});
    if (out.back().data == nullptr || is_device_address(out.back().data)) continue;
    const auto* bytes = static_cast<const char*>(buffer->data);
    out.back().host = std::make_shared<std::vector<char>>(bytes, bytes + buffer->size);
    out.back().data = out.back().host->data();
  }
  return out;
}

// Returns the bytes of an element; 0 for a dtype that no operator here supports.
size_t width_of(int dtype) {
  constexpr size_t kWidths[] = {4, 2, 1, 4, 1, 0, 2, 2, 4, 8, 8, 8, 1};
  return dtype >= 0 && dtype < static_cast<int>(std::size(kWidths)) ? kWidths[dtype] : 0;
}

Accesses accesses_of(const OldCall& call) {
  Accesses out;
  if (!races_are_checked()) return out;
  for (const bool writes : {false, true}) {
    for (const OldTensor& t : writes ? call.out : call.in) {
      size_t bytes = width_of(t.dtype);
      for (const int64_t size : t.sizes) bytes *= static_cast<size_t>(size);
      if (t.data != nullptr && t.host == nullptr && bytes > 0) out.push_back({.start = t.data, .width = bytes, .writes = writes});
    }
  }
  return out;
}

std::string text_of(const std::vector<OldTensor>& tensors) {
  std::string out;
  for (const OldTensor& t : tensors) out += (out.empty() ? "dtype " : ", dtype ") + std::to_string(t.dtype) + " " + list(t.sizes);
  return out;
}

}  // namespace

namespace sim_cann {
bool play_old_operator(const char* type, OldOperator run) {
  const std::lock_guard lock(played().mutex);
  return played().operators.emplace(type, run).second;
}
}  // namespace sim_cann

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
SIM_CANN_ENTRY int aclSetTensorDescName() { return kSuccess; }
SIM_CANN_ENTRY int aclSetTensorFormat() { return kSuccess; }
SIM_CANN_ENTRY int aclSetTensorPlaceMent() { return kSuccess; }
SIM_CANN_ENTRY int aclSetTensorShape() { return kSuccess; }
SIM_CANN_ENTRY void* aclCreateDataBuffer(void* data, size_t size) { return new Buffer{data, size}; }
SIM_CANN_ENTRY int aclDestroyDataBuffer(const void* buffer) {
  delete static_cast<const Buffer*>(buffer);
  return kSuccess;
}
SIM_CANN_ENTRY void* aclopCreateAttr() { return new Attributes; }
SIM_CANN_ENTRY void aclopDestroyAttr(const void* attributes) { delete static_cast<const Attributes*>(attributes); }
SIM_CANN_ENTRY int aclopSetAttrBool(void* to, const char* name, uint8_t value) { return add_integers(to, name, {value != 0}); }
SIM_CANN_ENTRY int aclopSetAttrInt(void* to, const char* name, int64_t value) { return add_integers(to, name, {value}); }
SIM_CANN_ENTRY int aclopSetAttrFloat(void* to, const char* name, float value) {
  static_cast<Attributes*>(to)->floats[name] = value;
  return add(to, name, std::to_string(value));
}
SIM_CANN_ENTRY int aclopSetAttrString(void* to, const char* name, const char* value) { return add(to, name, value); }
SIM_CANN_ENTRY int aclopSetAttrDataType(void* to, const char* name, int value) { return add_integers(to, name, {value}); }
SIM_CANN_ENTRY int aclopSetAttrListBool(void* to, const char* name, int, const void*) { return add(to, name, "..."); }
SIM_CANN_ENTRY int aclopSetAttrListFloat(void* to, const char* name, int, const void*) { return add(to, name, "..."); }
SIM_CANN_ENTRY int aclopSetAttrListInt(void* to, const char* name, int count, const int64_t* values) {
  return add_integers(to, name, {values, values + count});
}
SIM_CANN_ENTRY int aclopSetAttrListListInt(void* to, const char* name, int, const void*, const void*) { return add(to, name, "..."); }

SIM_CANN_ENTRY int aclopCompileAndExecute(const char* type, int inputs, const void* const in[], const void* const in_data[], int outputs,
                                          const void* const out[], void* const out_data[], const void* attributes, int, int, const char*,
                                          void* stream) {
  static const Attributes none;
  const Attributes& given = attributes == nullptr ? none : *static_cast<const Attributes*>(attributes);
  OldCall call{type, tensors_of(inputs, in, in_data), tensors_of(outputs, out, out_data), given.integers, given.floats};
  OldOperator run = nullptr;
  {
    const std::lock_guard lock(played().mutex);
    if (const auto found = played().operators.find(type); found != played().operators.end()) run = found->second;
  }
  if (run == nullptr)
    return fail(kOperatorNotFound, std::string("EZ3003: sim_cann does not play this operator of "
                                               "the old path (aclopCompileAndExecute): ") +
                                       type + "(" + text_of(call.in) + ") -> (" + text_of(call.out) + ")" + given.text);
  const Accesses accesses = accesses_of(call);
  enqueue(
      stream, type, [run, call = std::move(call)] { run(call); }, accesses);
  return kSuccess;
}
SIM_CANN_ENTRY int aclopCompileAndExecuteV2(const char* type, int inputs, void* in[], void* in_data[], int outputs, void* out[],
                                            void* out_data[], void* attributes, int engine, int flags, const char* path, void* stream) {
  return aclopCompileAndExecute(type, inputs, in, in_data, outputs, out, out_data, attributes, engine, flags, path, stream);
}
