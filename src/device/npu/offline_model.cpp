#include "npu_train/device/offline_model.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "device/npu/acl_objects.hpp"
#include "device/npu/ascendcl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

namespace acl = detail::acl;

constexpr const char* kOfflineModel = acl::kWhere;

std::optional<at::ScalarType> dtype_of(int acl_type) {
  switch (acl_type) {  // values of aclDataType
    case 0:
      return at::kFloat;
    case 1:
      return at::kHalf;
    case 2:
      return at::kChar;
    case 3:
      return at::kInt;
    case 4:
      return at::kByte;
    case 6:
      return at::kShort;
    case 9:
      return at::kLong;
    case 11:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 27:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

/// Returns the bytes of one sample; nullopt for invalid sizes, and for more than 2^62 bytes.
std::optional<size_t> sample_bytes(const OfflineTensor& tensor) {
  auto bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  for (const auto size : tensor.shape) {
    if (size <= 0 || bytes > (int64_t{1} << 62) / size) return std::nullopt;
    bytes *= size;
  }
  return static_cast<size_t>(bytes);
}

std::string shape_text(const acl::Dims& dims) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < dims.count; ++i) sizes.push_back(std::to_string(dims.sizes[i]));
  return str_cat("[", join(sizes), "]");
}

/// Describes an input or output without its batch dimension. `what` and `file` are for messages.
OfflineTensor described(const std::filesystem::path& file, const char* what, const char* name, int acl_type, const acl::Dims& dims) {
  const std::string label = name != nullptr ? name : "";
  const auto where = str_cat(file.string(), ": the ", what, " '", label, "' ");
  const auto dtype = dtype_of(acl_type);
  check(dtype.has_value(), ErrorKind::Data, kOfflineModel, where, "has the data type ", acl_type,
        " of AscendCL; supported: float32, float16, bfloat16, float64, int8 to int64, uint8, bool; hint: atc --output_type, "
        "--input_fp16_nodes");
  check(dims.count >= 1 && dims.count <= std::size(dims.sizes), ErrorKind::Data, kOfflineModel, where, "has ", dims.count,
        " sizes; the first one must be the batch");
  check(std::all_of(dims.sizes + 1, dims.sizes + dims.count, [](int64_t size) { return size > 0; }), ErrorKind::Data, kOfflineModel, where,
        "has the shape ", shape_text(dims), "; only the batch may be free; hint: compile with fixed sizes and --dynamic_batch_size");
  return {.name = label, .dtype = *dtype, .shape = {dims.sizes + 1, dims.sizes + dims.count}, .aipp = false};
}

/// Compares CANN's buffer size with the description: if they differ, the layout differs. Inputs may be padded for alignment.
void check_bytes(const std::filesystem::path& file, const OfflineTensor& tensor, size_t bytes, int64_t batch, bool is_input) {
  constexpr size_t kAlignment = 64;
  const auto sample = sample_bytes(tensor);
  const auto needed = sample.value_or(0) * static_cast<size_t>(batch);
  check(sample && bytes >= needed && (!is_input || bytes - needed <= kAlignment), ErrorKind::Data, kOfflineModel, file.string(), ": '",
        tensor.name, "' has ", bytes, " bytes, which are not ", batch, " samples of ", tensor.str(),
        "; hint: the model was compiled with another input format than npu_tool export selects");
}

}  // namespace

std::string OfflineTensor::str() const {
  std::vector<std::string> sizes{"batch"};
  for (const auto size : shape) sizes.push_back(std::to_string(size));
  return str_cat(c10::getDtypeNames(dtype).first, " [", join(sizes), "]");
}

struct OfflineModel::Impl {
  Impl(std::filesystem::path path, int device) : file(std::move(path)), session(device), model(std::in_place, file) {
    read_batches();
    read_tensors();
  }
  ~Impl() {
    const acl::KeepsContext kept;
    acl::attempt(acl::functions().set_context(session.context()), "aclrtSetCurrentContext");  // the freed objects belong to this context
    outputs_on_device.reset();
    inputs_on_device.reset();
    model.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void read_batches();
  void read_tensors();
  void check_input(const at::Tensor& given, const OfflineTensor& expected, int64_t batch) const;
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given);

  std::filesystem::path file;
  acl::Session session;
  std::optional<acl::LoadedModel> model;
  std::optional<acl::DeviceBuffers> inputs_on_device, outputs_on_device;
  std::vector<int64_t> batches;         // ascending
  std::optional<size_t> selects_batch;  // index of the input that selects the batch size
  std::vector<size_t> positions;        // indices of the other inputs
  std::vector<OfflineTensor> inputs, outputs;
};

void OfflineModel::Impl::read_batches() {
  const auto& call = acl::functions();
  for (size_t i = 0; i < call.input_count(model->desc()); ++i) {
    const char* name = call.input_name(model->desc(), i);
    if (name != nullptr && std::string(name) == acl::kBatchInput)
      selects_batch = i;
    else
      positions.push_back(i);
  }
  check(!positions.empty() && call.output_count(model->desc()) > 0, ErrorKind::Data, kOfflineModel, file.string(), ": has ",
        positions.size(), " inputs and ", call.output_count(model->desc()), " outputs; it must have one of each");
  if (!selects_batch) return;  // read_tensors() gets the batch size from the first input
  acl::Batches found{};
  acl::must(call.batches(model->desc(), &found), "aclmdlGetDynamicBatch");
  check(found.count >= 1 && found.count <= std::size(found.sizes), ErrorKind::Data, kOfflineModel, file.string(),
        ": was compiled for several sizes of an image, or several shapes; hint: compile with fixed sizes and --dynamic_batch_size");
  for (size_t i = 0; i < found.count; ++i) batches.push_back(static_cast<int64_t>(found.sizes[i]));
  std::sort(batches.begin(), batches.end());
}

void OfflineModel::Impl::read_tensors() {
  const auto& call = acl::functions();
  inputs_on_device.emplace();
  outputs_on_device.emplace();
  for (size_t i = 0; i < positions.size() + (selects_batch ? 1 : 0); ++i) {
    const auto bytes = call.input_bytes(model->desc(), i);
    if (selects_batch != i) {
      acl::Dims dims{};
      acl::must(call.input_dims(model->desc(), i, &dims), "aclmdlGetInputDimsV2");
      int aipp = 0;
      size_t attached = 0;
      acl::must(call.aipp_type(model->id(), i, &aipp, &attached), "aclmdlGetAippType");
      const bool image = aipp == acl::kWithStaticAipp;
      // An input of AIPP is bytes, whatever dtype the network computes in.
      auto tensor = described(file, "input", call.input_name(model->desc(), i), image ? 4 : call.input_type(model->desc(), i), dims);
      tensor.aipp = image;
      if (batches.empty()) {
        check(dims.sizes[0] > 0, ErrorKind::Data, kOfflineModel, file.string(), ": the batch of '", tensor.name,
              "' is free, and no sizes are compiled; hint: atc --dynamic_batch_size");
        batches = {dims.sizes[0]};
      }
      check_bytes(file, tensor, bytes, batches.back(), true);
      inputs.push_back(std::move(tensor));
    }
    inputs_on_device->add(bytes);
  }
  for (size_t i = 0; i < call.output_count(model->desc()); ++i) {
    acl::Dims dims{};
    acl::must(call.output_dims(model->desc(), i, &dims), "aclmdlGetOutputDims");
    outputs.push_back(described(file, "output", call.output_name(model->desc(), i), call.output_type(model->desc(), i), dims));
    const auto bytes = call.output_bytes(model->desc(), i);
    check_bytes(file, outputs.back(), bytes, batches.back(), false);
    outputs_on_device->add(bytes);
  }
}

void OfflineModel::Impl::check_input(const at::Tensor& given, const OfflineTensor& expected, int64_t batch) const {
  std::vector<int64_t> sizes{batch};
  sizes.insert(sizes.end(), expected.shape.begin(), expected.shape.end());
  check(given.defined() && given.is_cpu() && given.scalar_type() == expected.dtype && given.sizes() == at::IntArrayRef(sizes),
        ErrorKind::Usage, kOfflineModel, file.string(), ": the input '", expected.name, "' is ", expected.str(), " on the host; given: ",
        given.defined() ? str_cat(c10::getDtypeNames(given.scalar_type()).first, " ", given.sizes(), " on ", given.device()) : "no tensor");
}

std::vector<at::Tensor> OfflineModel::Impl::run(const std::vector<at::Tensor>& given) {
  check(given.size() == inputs.size(), ErrorKind::Usage, kOfflineModel, file.string(), ": ", given.size(),
        " inputs are given; the model has ", inputs.size());
  const auto batch = given[0].defined() && given[0].dim() > 0 ? given[0].size(0) : 0;
  if (std::find(batches.begin(), batches.end(), batch) == batches.end()) {
    std::vector<std::string> allowed;
    for (const auto size : batches) allowed.push_back(std::to_string(size));
    throw Error(ErrorKind::Usage, kOfflineModel,
                str_cat(file.string(), ": a batch of ", batch, "; the model was compiled for ", join(allowed)),
                "pad the batch, or compile this size too: --atc-batch of npu_tool export");
  }
  const acl::KeepsContext kept;
  const auto& call = acl::functions();
  acl::must(call.set_context(session.context()), "aclrtSetCurrentContext");
  if (selects_batch)
    acl::must(call.set_batch(model->id(), inputs_on_device->get(), *selects_batch, static_cast<uint64_t>(batch)),
              str_cat("aclmdlSetDynamicBatchSize(", batch, ")"));
  for (size_t i = 0; i < given.size(); ++i) {
    check_input(given[i], inputs[i], batch);
    const auto tensor = given[i].contiguous();
    acl::must(
        call.copy(inputs_on_device->memory(positions[i]), tensor.nbytes(), tensor.const_data_ptr(), tensor.nbytes(), session.to_device()),
        "aclrtMemcpy to the device");
  }
  acl::must(call.execute(model->id(), inputs_on_device->get(), outputs_on_device->get()), "aclmdlExecute");
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int64_t> sizes{batch};
    sizes.insert(sizes.end(), outputs[i].shape.begin(), outputs[i].shape.end());
    auto tensor = at::empty(sizes, outputs[i].dtype);
    acl::must(call.copy(tensor.mutable_data_ptr(), tensor.nbytes(), outputs_on_device->memory(i), tensor.nbytes(), session.to_host()),
              "aclrtMemcpy to the host");
    out.push_back(std::move(tensor));
  }
  return out;
}

OfflineModel::OfflineModel(const std::filesystem::path& file, int device) {
  std::error_code none;
  check(std::filesystem::is_regular_file(file, none), ErrorKind::Data, kOfflineModel, file.string(),
        ": is not a file; hint: it is written by npu_tool export --atc");
  impl_ = translated(kOfflineModel, [&] {
    const acl::KeepsContext kept;
    return std::make_unique<Impl>(file, device);
  });
}

OfflineModel::~OfflineModel() = default;
OfflineModel::OfflineModel(OfflineModel&&) noexcept = default;
OfflineModel& OfflineModel::operator=(OfflineModel&&) noexcept = default;

const std::vector<int64_t>& OfflineModel::batches() const { return impl_->batches; }
const std::vector<OfflineTensor>& OfflineModel::inputs() const { return impl_->inputs; }
const std::vector<OfflineTensor>& OfflineModel::outputs() const { return impl_->outputs; }
const std::filesystem::path& OfflineModel::file() const { return impl_->file; }

int64_t OfflineModel::batch_for(int64_t samples) const {
  const auto& sizes = batches();
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), samples);
  return above == sizes.begin() ? sizes.front() : *(above - 1);
}

std::vector<at::Tensor> OfflineModel::run(const std::vector<at::Tensor>& inputs) {
  return translated(kOfflineModel, [&] { return impl_->run(inputs); });
}

}  // namespace npu_train
