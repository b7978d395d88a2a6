#include "tools/align/dump_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <set>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

// Operators that Python calls as functions of torch.nn.functional.
const std::set<std::string>& functional() {
  static const std::set<std::string> names = {"adaptive_avg_pool1d",
                                              "adaptive_avg_pool2d",
                                              "adaptive_max_pool2d",
                                              "avg_pool1d",
                                              "avg_pool2d",
                                              "batch_norm",
                                              "binary_cross_entropy",
                                              "conv1d",
                                              "conv2d",
                                              "conv3d",
                                              "conv_transpose1d",
                                              "conv_transpose2d",
                                              "conv_transpose3d",
                                              "cross_entropy_loss",
                                              "dropout",
                                              "elu",
                                              "embedding",
                                              "gelu",
                                              "glu",
                                              "group_norm",
                                              "hardswish",
                                              "hardtanh",
                                              "huber_loss",
                                              "instance_norm",
                                              "interpolate",
                                              "l1_loss",
                                              "layer_norm",
                                              "leaky_relu",
                                              "linear",
                                              "log_softmax",
                                              "max_pool1d",
                                              "max_pool2d",
                                              "mish",
                                              "mse_loss",
                                              "nll_loss",
                                              "one_hot",
                                              "pad",
                                              "prelu",
                                              "relu",
                                              "rms_norm",
                                              "scaled_dot_product_attention",
                                              "selu",
                                              "sigmoid",
                                              "silu",
                                              "smooth_l1_loss",
                                              "softmax",
                                              "softplus",
                                              "tanh"};
  return names;
}

}  // namespace

std::string operator_base(const std::string& library, const std::string& name) {
  if (library != "aten")
    return std::string(1, static_cast<char>(std::toupper(library.empty() ? 'a' : library[0]))) +
           (library.empty() ? "ten" : library.substr(1)) + "." + name;
  if (name == "cross_entropy_loss") return "Functional.cross_entropy";
  if (functional().count(name) != 0) return "Functional." + name;
  return (name.ends_with("_") ? "Tensor." : "Torch.") + name;
}

std::string dtype_text(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "torch.float32";
    case c10::kHalf:
      return "torch.float16";
    case c10::kBFloat16:
      return "torch.bfloat16";
    case c10::kDouble:
      return "torch.float64";
    case c10::kLong:
      return "torch.int64";
    case c10::kInt:
      return "torch.int32";
    case c10::kShort:
      return "torch.int16";
    case c10::kChar:
      return "torch.int8";
    case c10::kByte:
      return "torch.uint8";
    case c10::kBool:
      return "torch.bool";
    case c10::kComplexFloat:
      return "torch.complex64";
    case c10::kComplexDouble:
      return "torch.complex128";
    default:
      return "torch." + to_lower(c10::toString(type));
  }
}

std::vector<size_t> argument_order(const std::string& name, size_t count) {
  std::vector<size_t> out(count);
  std::iota(out.begin(), out.end(), size_t{0});
  // aten: input, weight, bias, mean, var; F.batch_norm: input, mean, var, weight, bias
  if (name == "batch_norm" && count >= 5) std::rotate(out.begin() + 1, out.begin() + 3, out.begin() + 5);
  return out;
}

std::string class_of_operator(const std::string& name) {
  static const std::map<std::string, std::string> known = {{"addmm", "Linear"},
                                                           {"matmul", "Linear"},
                                                           {"mm", "Linear"},
                                                           {"batch_norm", "BatchNorm2d"},
                                                           {"batch_norm_act", "BatchNorm2d"},
                                                           {"layer_norm", "LayerNorm"},
                                                           {"group_norm", "GroupNorm"},
                                                           {"layer", "Layer"}};
  if (const auto found = known.find(name); found != known.end()) return found->second;
  std::string out;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return out.empty() ? "Layer" : out;
}

}  // namespace npu_train::detail
