/// Declares a piece of a forward as a layer, for all tools that observe a model: dumps, comparisons, profilers.
///
/// A layer with parameters needs no declaration, since an operator that receives its parameter identifies it. A layer without parameters
/// (an activation, a residual block, a complete attention) is observed if its forward declares it:
///
///   at::Tensor forward(const at::Tensor& x) {
///     return npu_train::in_layer("encoder", x, [&](const at::Tensor& t) { return encoder->forward(t); });
///   }
///
/// It is a USER_SCOPE of libtorch's RecordFunction, so that profilers show the name too. Without a listener it costs one branch.
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

/// While it lives, the code of this thread belongs to the layer `name`. Scopes nest: "mlp" inside "encoder.0" is "encoder.0.mlp". With
/// `inputs` and a result the layer has values of its own that a dump shows; without them, it only names the operators that run in it.
class LayerScope {
 public:
  explicit LayerScope(const std::string& name, const std::vector<at::Tensor>& inputs = {});
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

  /// Records the layer's result, and returns it.
  at::Tensor result(at::Tensor y);

 private:
  std::unique_ptr<detail::RecordedOp> record_;  // nullptr: there is no listener
};

/// `forward(x)` as the layer `name`; an empty name declares nothing.
at::Tensor in_layer(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward);

}  // namespace npu_train
