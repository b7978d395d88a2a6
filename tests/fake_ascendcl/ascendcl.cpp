// AscendCL for tests. An offline model is a text:
//   input NAME TYPE SIZE...     TYPE as aclDataType; the batch is -1 or the only one
//   output NAME TYPE SIZE...
//   batches SIZE...             several batch sizes: adds the input ascend_mbatch_shape_data
//   bytes SIZE                  the first input has this size, whatever its description
//   aipp MIN... FACTOR...       the first input takes bytes [height, width, channels]; (byte - MIN) * FACTOR by channel
// Output [n, k] is the mean of channel k % channels of image n, plus k. Calls out of order, with wrong sizes or without a context fail.
// FAKE_ASCENDCL_TRACE: a file that gets the calls, and at the end what was not freed. FAKE_ASCENDCL_FAILS: a function that fails with
// FAKE_ASCENDCL_CODE. FAKE_ASCENDCL_DEVICES: the number of devices. FAKE_ASCENDCL_ON_DEVICE: the program runs on the chip.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kInvalid = 100000, kNotStarted = 100001, kRepeated = 100002, kNoContext = 107002, kBadFile = 145002, kBadBatch = 145013;

struct Tensor {
  std::string name;
  int type = 0;
  std::vector<int64_t> sizes;
};

struct Model {
  std::vector<Tensor> inputs, outputs;
  std::vector<uint64_t> batches;
  std::vector<double> aipp;
  size_t bytes = 0;
  uint64_t selected = 0;
};

struct Buffer {
  void* data;
  size_t bytes;
};

struct Dataset {
  std::vector<const Buffer*> buffers;
};

struct Desc {
  Model* model = nullptr;
};

struct Dims {
  char name[128];
  size_t count;
  int64_t sizes[128];
};

struct Batches {
  size_t count;
  uint64_t sizes[128];
};

bool started = false;
int devices_set = 0;
std::string error_text;
uint32_t next_model = 1;
std::map<uint32_t, Model> models;
std::map<void*, size_t> memory;
std::set<void*> contexts;
std::set<const Buffer*> buffers;
std::set<const Dataset*> datasets;
std::set<const Desc*> descs;
thread_local void* current = nullptr;

void trace(const std::string& line) {
  if (const char* path = std::getenv("FAKE_ASCENDCL_TRACE")) std::ofstream(path, std::ios::app) << line << "\n";
}

int failed(int code, const std::string& why) {
  error_text = "EH9999: " + why + "\n";
  return code;
}

// Begins a call: writes the trace, fails if a failure is planted, and checks the order of calls.
int enter(const char* name, bool needs_context, const std::string& detail = "") {
  trace(name + (detail.empty() ? "" : " " + detail));
  const char* fails = std::getenv("FAKE_ASCENDCL_FAILS");
  if (fails != nullptr && std::string(fails) == name) {
    const char* code = std::getenv("FAKE_ASCENDCL_CODE");
    return failed(code != nullptr ? std::atoi(code) : 500000, std::string("planted in ") + name);
  }
  if (!started) return failed(kNotStarted, "aclInit was not called");
  if (needs_context && contexts.count(current) == 0) return failed(kNoContext, "no context");
  return 0;
}

size_t bytes_of(int type) {
  return type == 1 || type == 6 || type == 27 ? 2 : type == 9 || type == 11 ? 8 : type == 2 || type == 4 || type == 12 ? 1 : 4;
}

size_t largest_batch(const Model& model, const Tensor& tensor) {
  return model.batches.empty() ? static_cast<size_t>(tensor.sizes.empty() ? 1 : std::max<int64_t>(tensor.sizes[0], 1))
                               : *std::max_element(model.batches.begin(), model.batches.end());
}

size_t sample_size(const Tensor& tensor) {
  size_t out = 1;
  for (size_t i = 1; i < tensor.sizes.size(); ++i) out *= static_cast<size_t>(tensor.sizes[i]);
  return out;
}

bool is_image(const Model& model, size_t index) { return index == 0 && !model.aipp.empty(); }

size_t input_bytes(const Model& model, size_t index) {
  if (index == model.inputs.size()) return 8;  // the input that selects the batch size
  if (index == 0 && model.bytes != 0) return model.bytes;
  const auto& tensor = model.inputs[index];
  return largest_batch(model, tensor) * sample_size(tensor) * (is_image(model, index) ? 1 : bytes_of(tensor.type));
}

size_t output_bytes(const Model& model, size_t index) {
  const auto& tensor = model.outputs[index];
  return largest_batch(model, tensor) * sample_size(tensor) * bytes_of(tensor.type);
}

// Converts the fp16 bits of a finite number.
double from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits >> 15) != 0 ? -value : value;
}

uint16_t to_half(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (value == 0) return sign;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(value), &exponent);
  return static_cast<uint16_t>(sign + ((exponent + 13) << 10) + static_cast<int>(std::nearbyint(mantissa * 2048)));
}

double number_at(const char* data, int type, size_t index) {
  if (type == 4) return static_cast<unsigned char>(data[index]);
  if (type == 1) {
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * index, 2);
    return from_half(bits);
  }
  float value = 0;
  std::memcpy(&value, data + 4 * index, 4);
  return static_cast<double>(value);
}

void put_number(char* data, int type, size_t index, double value) {
  if (type == 1) {
    const auto bits = to_half(value);
    std::memcpy(data + 2 * index, &bits, 2);
  } else {
    const auto narrow = static_cast<float>(value);
    std::memcpy(data + 4 * index, &narrow, 4);
  }
}

double channel_mean(const Model& model, const char* image, size_t channel) {
  const auto& input = model.inputs[0];
  const auto channels = static_cast<size_t>(input.sizes[1]), pixels = sample_size(input) / channels;
  double sum = 0;
  for (size_t p = 0; p < pixels; ++p)
    sum += model.aipp.empty() ? number_at(image, input.type, channel * pixels + p)
                              : (number_at(image, 4, p * channels + channel) - model.aipp[channel]) * model.aipp[channels + channel];
  return sum / static_cast<double>(pixels);
}

bool read_model(const char* path, Model& model) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "input" || kind == "output") {
      Tensor tensor;
      in >> tensor.name >> tensor.type;
      for (int64_t size = 0; in >> size;) tensor.sizes.push_back(size);
      (kind == "input" ? model.inputs : model.outputs).push_back(tensor);
    } else if (kind == "batches") {
      for (uint64_t size = 0; in >> size;) model.batches.push_back(size);
    } else if (kind == "bytes") {
      in >> model.bytes;
    } else if (kind == "aipp") {
      for (double value = 0; in >> value;) model.aipp.push_back(value);
    } else {
      return false;
    }
  }
  return !model.inputs.empty();
}

int give_dims(const Tensor& tensor, bool bytes, Dims* dims) {
  auto sizes = tensor.sizes;
  if (bytes) sizes = {sizes[0], sizes[2], sizes[3], sizes[1]};
  std::strncpy(dims->name, tensor.name.c_str(), sizeof dims->name - 1);
  dims->count = sizes.size();
  std::copy(sizes.begin(), sizes.end(), dims->sizes);
  return 0;
}

// Checks that the buffers of a data set are on the device and have the sizes of the model.
int check_buffers(const Dataset* set, const std::vector<size_t>& sizes) {
  if (datasets.count(set) == 0 || set->buffers.size() != sizes.size()) return failed(kInvalid, "wrong number of buffers");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto* buffer = set->buffers[i];
    const auto found = memory.find(buffer->data);
    if (found == memory.end() || found->second < buffer->bytes || buffer->bytes != sizes[i])
      return failed(kInvalid, "wrong size of a buffer");
  }
  return 0;
}

}  // namespace

extern "C" {

int aclInit(const char*) {
  if (started) return kRepeated;
  started = true;
  const int code = enter("aclInit", false);
  if (code != 0) started = false;
  return code;
}

int aclFinalize() {
  const int code = enter("aclFinalize", false);
  std::ostringstream left;
  left << "left: " << models.size() << " models, " << descs.size() << " descriptions, " << datasets.size() << " data sets, "
       << buffers.size() << " buffers, " << memory.size() << " blocks, " << contexts.size() << " contexts, " << devices_set << " devices";
  trace(left.str());
  started = false;
  return code;
}

const char* aclGetRecentErrMsg() { return error_text.empty() ? nullptr : error_text.c_str(); }

int aclrtSetDevice(int32_t device) {
  const int code = enter("aclrtSetDevice", false, std::to_string(device));
  if (code == 0) ++devices_set;
  return code;
}

int aclrtResetDevice(int32_t) {
  --devices_set;
  return enter("aclrtResetDevice", false);
}

int aclrtGetDeviceCount(uint32_t* count) {
  const char* set = std::getenv("FAKE_ASCENDCL_DEVICES");
  *count = set != nullptr ? static_cast<uint32_t>(std::atoi(set)) : 1;
  return enter("aclrtGetDeviceCount", false);
}

int aclrtGetRunMode(int* mode) {
  *mode = std::getenv("FAKE_ASCENDCL_ON_DEVICE") != nullptr ? 0 : 1;
  return enter("aclrtGetRunMode", true);
}

int aclrtCreateContext(void** context, int32_t) {
  const int code = enter("aclrtCreateContext", false);
  if (code != 0) return code;
  if (devices_set == 0) return failed(kNoContext, "no device is set");
  *context = new int(0);
  contexts.insert(*context);
  current = *context;
  return 0;
}

int aclrtDestroyContext(void* context) {
  const int code = enter("aclrtDestroyContext", false);
  if (contexts.erase(context) == 0) return failed(kInvalid, "no such context");
  if (current == context) current = nullptr;
  delete static_cast<int*>(context);
  return code;
}

int aclrtGetCurrentContext(void** context) {
  *context = current;
  return contexts.count(current) != 0 ? 0 : kNoContext;
}

int aclrtSetCurrentContext(void* context) {
  if (contexts.count(context) == 0) return failed(kInvalid, "no such context");
  current = context;
  return 0;
}

int aclrtMalloc(void** out, size_t bytes, int) {
  const int code = enter("aclrtMalloc", true, std::to_string(bytes));
  if (code != 0) return code;
  *out = std::malloc(bytes);
  memory[*out] = bytes;
  return 0;
}

int aclrtFree(void* block) {
  const int code = enter("aclrtFree", true);
  if (memory.erase(block) == 0) return failed(kInvalid, "free of unknown memory");
  std::free(block);
  return code;
}

int aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int kind) {
  const int code = enter("aclrtMemcpy", true, std::to_string(bytes));
  if (code != 0) return code;
  const bool on_device = std::getenv("FAKE_ASCENDCL_ON_DEVICE") != nullptr;
  const auto to_device = memory.find(to), from_device = memory.find(const_cast<void*>(from));
  const bool into = to_device != memory.end() && to_device->second >= bytes,
             out = from_device != memory.end() && from_device->second >= bytes;
  if (bytes > room || into == out || kind != (on_device ? 3 : into ? 1 : 2)) return failed(kInvalid, "a copy with wrong sizes or places");
  std::memcpy(to, from, bytes);
  return 0;
}

int aclmdlLoadFromFile(const char* path, uint32_t* id) {
  const int code = enter("aclmdlLoadFromFile", true);
  if (code != 0) return code;
  Model model;
  if (!read_model(path, model)) return failed(kBadFile, "the file is not an offline model");
  *id = next_model++;
  models[*id] = model;
  return 0;
}

int aclmdlUnload(uint32_t id) {
  const int code = enter("aclmdlUnload", true);
  return models.erase(id) == 0 ? failed(kInvalid, "no such model") : code;
}

Desc* aclmdlCreateDesc() { return const_cast<Desc*>(*descs.insert(new Desc).first); }

int aclmdlDestroyDesc(Desc* desc) {
  if (descs.erase(desc) == 0) return failed(kInvalid, "no such description");
  delete desc;
  return 0;
}

int aclmdlGetDesc(Desc* desc, uint32_t id) {
  const int code = enter("aclmdlGetDesc", true);
  if (code != 0) return code;
  desc->model = &models.at(id);
  return 0;
}

size_t aclmdlGetNumInputs(Desc* desc) { return desc->model->inputs.size() + (desc->model->batches.empty() ? 0 : 1); }
size_t aclmdlGetNumOutputs(Desc* desc) { return desc->model->outputs.size(); }
size_t aclmdlGetInputSizeByIndex(Desc* desc, size_t index) { return input_bytes(*desc->model, index); }
size_t aclmdlGetOutputSizeByIndex(Desc* desc, size_t index) { return output_bytes(*desc->model, index); }
int aclmdlGetInputDimsV2(const Desc* desc, size_t index, Dims* dims) {
  const int code = enter("aclmdlGetInputDimsV2", false);
  return code != 0 ? code : give_dims(desc->model->inputs.at(index), is_image(*desc->model, index), dims);
}
int aclmdlGetOutputDims(const Desc* desc, size_t index, Dims* dims) {
  const int code = enter("aclmdlGetOutputDims", false);
  return code != 0 ? code : give_dims(desc->model->outputs.at(index), false, dims);
}
int aclmdlGetInputDataType(const Desc* desc, size_t index) { return desc->model->inputs.at(index).type; }
int aclmdlGetOutputDataType(const Desc* desc, size_t index) { return desc->model->outputs.at(index).type; }
const char* aclmdlGetInputNameByIndex(const Desc* desc, size_t index) {
  return index == desc->model->inputs.size() ? "ascend_mbatch_shape_data" : desc->model->inputs.at(index).name.c_str();
}
const char* aclmdlGetOutputNameByIndex(const Desc* desc, size_t index) { return desc->model->outputs.at(index).name.c_str(); }

int aclmdlGetAippType(uint32_t id, size_t index, int* type, size_t* attached) {
  *type = is_image(models.at(id), index) ? 1 : 0;
  *attached = 0xFFFFFFFF;
  return enter("aclmdlGetAippType", true);
}

int aclmdlGetDynamicBatch(const Desc* desc, Batches* out) {
  const int code = enter("aclmdlGetDynamicBatch", false);
  out->count = desc->model->batches.size();
  std::copy(desc->model->batches.begin(), desc->model->batches.end(), out->sizes);
  return code;
}

int aclmdlSetDynamicBatchSize(uint32_t id, Dataset*, size_t index, uint64_t batch) {
  const int code = enter("aclmdlSetDynamicBatchSize", true, std::to_string(batch));
  if (code != 0) return code;
  auto& model = models.at(id);
  if (index != model.inputs.size() || std::count(model.batches.begin(), model.batches.end(), batch) == 0)
    return failed(kBadBatch, "no such batch size");
  model.selected = batch;
  return 0;
}

Buffer* aclCreateDataBuffer(void* data, size_t bytes) {
  auto* out = new Buffer{data, bytes};
  buffers.insert(out);
  return out;
}

int aclDestroyDataBuffer(const Buffer* buffer) {
  if (buffers.erase(buffer) == 0) return failed(kInvalid, "no such buffer");
  delete buffer;
  return 0;
}

Dataset* aclmdlCreateDataset() {
  auto* out = new Dataset;
  datasets.insert(out);
  return out;
}

int aclmdlDestroyDataset(const Dataset* set) {
  if (datasets.erase(set) == 0) return failed(kInvalid, "no such data set");
  delete set;
  return 0;
}

int aclmdlAddDatasetBuffer(Dataset* set, Buffer* buffer) {
  const int code = enter("aclmdlAddDatasetBuffer", false);
  if (code == 0) set->buffers.push_back(buffer);
  return code;
}

int aclmdlExecute(uint32_t id, const Dataset* in, Dataset* out) {
  int code = enter("aclmdlExecute", true);
  if (code != 0) return code;
  auto& model = models.at(id);
  std::vector<size_t> inputs, outputs;
  for (size_t i = 0; i < model.inputs.size() + (model.batches.empty() ? 0 : 1); ++i) inputs.push_back(input_bytes(model, i));
  for (size_t i = 0; i < model.outputs.size(); ++i) outputs.push_back(output_bytes(model, i));
  code = check_buffers(in, inputs);
  if (code == 0) code = check_buffers(out, outputs);
  if (code != 0) return code;
  const auto batch = model.batches.empty() ? largest_batch(model, model.inputs[0]) : model.selected;
  if (batch == 0) return failed(kBadBatch, "no batch size is set");
  model.selected = 0;  // must be set again before each call
  const auto& result = model.outputs[0];
  const auto sample = inputs[0] / largest_batch(model, model.inputs[0]), classes = sample_size(result);
  const auto channels = static_cast<size_t>(model.inputs[0].sizes[1]);
  for (size_t n = 0; n < batch; ++n)
    for (size_t k = 0; k < classes; ++k)
      put_number(static_cast<char*>(out->buffers[0]->data), result.type, n * classes + k,
                 channel_mean(model, static_cast<const char*>(in->buffers[0]->data) + n * sample, k % channels) + static_cast<double>(k));
  return 0;
}

}  // extern "C"
