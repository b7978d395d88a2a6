#include "io/pickle_names.hpp"

#include <algorithm>
#include <array>

#include "io/torch_storage.hpp"

namespace npu_train::detail {
namespace {

// Everything that a pickle may name, besides the storages, which become descriptions. What they do stands in call().
// A tensor that lay on an NPU is saved by torch_npu as its copy on the host with the NPU's memory format beside it.
constexpr std::array<std::string_view, 5> kFunctions = {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter",
                                                        "collections OrderedDict", "torch_npu.utils.storage _rebuild_npu_tensor",
                                                        "torch_npu.npu._format Format"};

}  // namespace

std::string_view storage_of(std::string_view global) {
  for (const std::string_view module : {"torch ", "torch.storage "}) {
    if (global.starts_with(module) && storage_dtype(global.substr(module.size()))) return global.substr(module.size());
  }
  return {};
}

bool is_known_global(std::string_view global) {
  return std::find(kFunctions.begin(), kFunctions.end(), global) != kFunctions.end() || !storage_of(global).empty();
}

std::string refused_global_hint(std::string_view global) {
  const auto has = [&](std::string_view part) { return global.find(part) != std::string_view::npos; };
  if (has("torch Complex")) return "complex tensors are not read; hint: torch.save(torch.view_as_real(tensor), path)";
  if (has("_rebuild_qtensor") || has("torch QInt") || has("torch QUInt"))
    return "quantised tensors are not read; hint: torch.save(tensor.dequantize(), path)";
  if (has("_rebuild_sparse")) return "sparse tensors are not read; hint: torch.save(tensor.to_dense(), path)";
  if (has("_rebuild_tensor_v3"))
    return "a tensor of a dtype like float8 or uint16, which are not read; hint: torch.save(tensor.to(torch.float32), path)";
  if (has("_rebuild_from_type_v2") || has("_rebuild_parameter_with_state"))
    return "a tensor with Python attributes is not read; hint: torch.save(tensor.detach().clone(), path)";
  return "only tensors, numbers, text, dicts, lists and tuples are read, nothing is ever executed; hint: save only a state_dict: "
         "torch.save(model.state_dict(), path)";
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 120));
  for (auto& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return out;
}

}  // namespace npu_train::detail
