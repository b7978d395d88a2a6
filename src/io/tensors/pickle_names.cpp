#include "io/tensors/pickle_names.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "io/tensors/torch_storage.hpp"

namespace npu_train::detail {
namespace {

// All functions that a pickle may use. It may also use storages (which become descriptions) and plain data. call() implements the
// functions. torch_npu saves an NPU tensor as its host copy and the NPU's memory format.
constexpr std::array<std::string_view, 5> kFunctions = {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor",
                                                        "torch._utils _rebuild_parameter", "torch_npu.utils.storage _rebuild_npu_tensor",
                                                        "torch_npu.npu._format Format"};

// Classes of other data in checkpoints. Pickle protocol 2 replaces module names of Python 3 by those of Python 2.
const std::unordered_map<std::string_view, PlainForm>& plain_classes() {
  static const auto all = [] {
    std::unordered_map<std::string_view, PlainForm> out = {
        {"collections OrderedDict", PlainForm::Dict},
        {"collections defaultdict", PlainForm::Dict},
        {"collections Counter", PlainForm::Dict},
        {"lightning.fabric.utilities.data AttributeDict", PlainForm::Dict},
        {"lightning_fabric.utilities.data AttributeDict", PlainForm::Dict},
        {"lightning.pytorch.utilities.parsing AttributeDict", PlainForm::Dict},
        {"pytorch_lightning.utilities.parsing AttributeDict", PlainForm::Dict},
        {"argparse Namespace", PlainForm::Attributes},
        {"types SimpleNamespace", PlainForm::Attributes},
        {"collections deque", PlainForm::List},
        {"torch Size", PlainForm::List},
    };
    for (const auto* name : {"__builtin__ set", "builtins set", "__builtin__ frozenset", "builtins frozenset"})
      out.emplace(name, PlainForm::List);
    for (const auto* name : {"pathlib Path",
                             "pathlib PurePath",
                             "pathlib PosixPath",
                             "pathlib PurePosixPath",
                             "pathlib WindowsPath",
                             "pathlib PureWindowsPath",
                             "pathlib._local Path",
                             "pathlib._local PurePath",
                             "pathlib._local PosixPath",
                             "pathlib._local PurePosixPath",
                             "pathlib._local WindowsPath",
                             "pathlib._local PureWindowsPath",
                             "numpy.core.multiarray scalar",
                             "numpy._core.multiarray scalar",
                             "numpy.core.multiarray _reconstruct",
                             "numpy._core.multiarray _reconstruct",
                             "numpy dtype",
                             "_codecs encode",
                             "torch device",
                             "torch.torch_version TorchVersion",
                             "torch.serialization _get_layout",
                             "datetime datetime",
                             "datetime date",
                             "datetime time",
                             "datetime timedelta",
                             "datetime timezone",
                             "uuid UUID",
                             "decimal Decimal",
                             "fractions Fraction",
                             "__builtin__ complex",
                             "__builtin__ bytearray",
                             "__builtin__ slice",
                             "__builtin__ xrange",
                             "builtins complex",
                             "builtins bytearray",
                             "builtins slice",
                             "builtins range"})
      out.emplace(name, PlainForm::Value);
    return out;
  }();
  return all;
}

// Names that may be used as values: number types, the factory of a defaultdict. Calling them is refused.
bool is_plain_name(std::string_view global) {
  static const std::unordered_set<std::string_view> types = {"bool", "int",  "long",   "float", "complex", "str",       "unicode",
                                                             "list", "dict", "object", "tuple", "bytes",   "bytearray", "type"};
  static const std::unordered_set<std::string_view> torch = {
      "float", "float16", "float32", "float64",   "half",      "double",     "bfloat16",      "int",
      "int8",  "int16",   "int32",   "int64",     "uint8",     "uint16",     "uint32",        "uint64",
      "short", "long",    "bool",    "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"};
  static const std::unordered_set<std::string_view> numpy = {"ndarray", "float16", "float32", "float64", "int8",   "int16", "int32",
                                                             "int64",   "uint8",   "uint16",  "uint32",  "uint64", "bool_", "str_"};
  const auto is_one = [&](std::string_view module, const auto& names) {
    return global.starts_with(module) && names.count(global.substr(module.size())) != 0;
  };
  return is_one("__builtin__ ", types) || is_one("builtins ", types) || is_one("torch ", torch) || is_one("numpy ", numpy);
}

}  // namespace

bool is_plain_class(std::string_view global) { return plain_classes().count(global) != 0; }
PlainForm plain_form(std::string_view global) { return plain_classes().at(global); }

std::string_view storage_of(std::string_view global) {
  for (const std::string_view module : {"torch ", "torch.storage "}) {
    if (global.starts_with(module) && storage_dtype(global.substr(module.size()))) return global.substr(module.size());
  }
  return {};
}

bool is_npu_metadata(std::string_view key) {
  constexpr std::array<std::string_view, 5> kNames = {"npu_format_/", "origin_format_/", "storage_sizes_/", "base_sizes_/",
                                                      "base_strides_/"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) { return key.starts_with(name); });
}

bool is_known_global(std::string_view global) {
  return std::find(kFunctions.begin(), kFunctions.end(), global) != kFunctions.end() || !storage_of(global).empty() ||
         is_plain_class(global) || is_plain_name(global);
}

std::string refused_global_hint(std::string_view global) {
  const auto has = [&](std::string_view part) { return global.find(part) != std::string_view::npos; };
  if (has("torch Complex")) return "complex tensors are not read; hint: torch.save(torch.view_as_real(tensor), path)";
  if (has("_rebuild_qtensor") || has("torch QInt") || has("torch QUInt"))
    return "quantised tensors are not read; hint: torch.save(tensor.dequantize(), path)";
  if (has("_rebuild_sparse")) return "sparse tensors are not read; hint: torch.save(tensor.to_dense(), path)";
  if (has("_rebuild_tensor_v3"))
    return "tensors of dtypes such as float8 or uint16 are not read; hint: torch.save(tensor.to(torch.float32), path)";
  if (has("_rebuild_from_type_v2") || has("_rebuild_parameter_with_state"))
    return "tensors with Python attributes are not read; hint: torch.save(tensor.detach().clone(), path)";
  return "only tensors, numbers, text, dicts, lists and tuples are read, and no code is executed; hint: save only a state_dict: "
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
