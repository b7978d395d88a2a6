/// Declares a piece of a forward as a layer, for everything that watches a model: dumps, comparisons, profilers.
///
/// A layer with parameters needs no declaration, since an operator that receives its parameter gives it away. What has none (an
/// activation, a residual block, an attention as a whole) is seen once its forward says so:
///
///   at::Tensor forward(const at::Tensor& x) {
///     return npu_train::in_layer("encoder", x, [&](const at::Tensor& t) { return encoder->forward(t); });
///   }
///
/// It is a USER_SCOPE of libtorch's RecordFunction, so that profilers show the name too. Nobody listening: one branch.
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
/// `inputs` and a result the layer has values of its own that a dump shows; without, it names what runs in it.
class LayerScope {
 public:
  explicit LayerScope(const std::string& name, const std::vector<at::Tensor>& inputs = {});
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

  /// Notes and gives back what the layer computed.
  at::Tensor result(at::Tensor y);

 private:
  std::unique_ptr<detail::RecordedOp> record_;  // nullptr: nobody listens
};

/// `forward(x)` as the layer `name`; an empty name declares nothing.
at::Tensor in_layer(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward);

}  // namespace npu_train
