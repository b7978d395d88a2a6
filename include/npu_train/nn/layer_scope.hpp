/// Declares a part of a forward as a layer, for all tools that observe a model: dumps, comparisons, profilers.
///
/// A layer with parameters needs no declaration, because operators that receive its parameters identify it. A layer without parameters (an
/// activation, a residual block, a complete attention) is observed only if the forward declares it:
///
///   at::Tensor forward(const at::Tensor& x) {
///     return npu_train::in_layer("encoder", x, [&](const at::Tensor& t) { return encoder->forward(t); });
///   }
///
/// The declaration is a USER_SCOPE of libtorch's RecordFunction, so profilers show the name, too. Without a listener it costs one branch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace npu_train {

namespace detail {
class RecordedOp;
}

/// During its lifetime, code of this thread belongs to the layer `name`. Scopes nest: "mlp" inside "encoder.0" is "encoder.0.mlp". If
/// `inputs` and a result() are given, a dump contains them as the values of the layer. Otherwise the scope only names the operators inside.
class LayerScope {
 public:
  explicit LayerScope(const std::string& name, const std::vector<at::Tensor>& inputs = {});
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

  /// Records the layer's result and returns it.
  at::Tensor result(at::Tensor y);

 private:
  std::unique_ptr<detail::RecordedOp> record_;  // nullptr without a listener
};

/// Names a value that a forward computes, and returns it. A dump with `level: debug` has only such values and their gradients (like
/// msprobe's PrecisionDebugger.save). For other levels and tools, the value is a declared layer that returns its input.
///
///   const at::Tensor scores = npu_train::named_value("scores", at::matmul(q, k.transpose(-2, -1)));
at::Tensor named_value(const std::string& name, const at::Tensor& value);

/// Computes `forward(x)` as the layer `name`; an empty name declares no layer.
at::Tensor in_layer(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward);

}  // namespace npu_train
