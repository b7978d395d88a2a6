#include "npu_train/engine/predictor.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kOfflinePredictor = "OfflinePredictor";

}  // namespace

OfflineImages images_of(const OfflineModel& model) {
  const auto& input = model.inputs().front();
  const auto& shape = input.shape;
  const bool planes = !input.aipp && shape.size() == 3 && shape[0] == 3 && (input.dtype == at::kFloat || input.dtype == at::kHalf);
  const bool bytes = input.aipp && shape.size() == 3 && shape[2] == 3;
  check(model.inputs().size() == 1 && (planes || bytes), ErrorKind::Data, kOfflinePredictor, model.file().string(), ": has ",
        model.inputs().size(), " inputs, the first one ", input.str(), input.aipp ? " by AIPP" : "",
        "; supported: one input of RGB images, float32 or float16 [batch, 3, height, width], or RGB888_U8 by AIPP");
  const auto& output = model.outputs().front();
  check(output.shape.size() == 1 && at::isFloatingType(output.dtype), ErrorKind::Data, kOfflinePredictor, model.file().string(),
        ": its first output is ", output.str(), "; a classifier has [batch, classes] of floating point");
  return {.height = shape[bytes ? 0 : 1], .width = shape[bytes ? 1 : 2], .aipp = bytes};
}

OfflinePredictor::OfflinePredictor(OfflineModel model, ImagePreparation preparation)
    : model_(std::move(model)), preparation_(std::move(preparation)), images_(images_of(model_)) {}

int64_t OfflinePredictor::classes() const { return model_.outputs().front().shape[0]; }

at::Tensor OfflinePredictor::read(const std::string& path) const {
  auto image = images_.aipp ? preparation_.read_bytes(path) : preparation_.read(path);
  const auto height = image.size(images_.aipp ? 0 : 1), width = image.size(images_.aipp ? 1 : 2);
  check(height == images_.height && width == images_.width, ErrorKind::Data, kOfflinePredictor, path, ": has ", height, " x ", width,
        " pixels after the transforms; ", model_.file().string(), " takes ", images_.height, " x ", images_.width,
        "; hint: the transforms must be those of this model");
  return image;
}

at::Tensor OfflinePredictor::logits(const std::vector<std::string>& paths, const OnBadImage& bad, const OnProgress& progress) {
  std::vector<at::Tensor> out;
  const auto& input = model_.inputs().front();
  for (size_t done = 0; done < paths.size();) {
    const auto batch = model_.batch_for(static_cast<int64_t>(paths.size() - done));
    const auto images = std::min(batch, static_cast<int64_t>(paths.size() - done));
    std::vector<int64_t> sizes{batch}, unread;
    sizes.insert(sizes.end(), input.shape.begin(), input.shape.end());
    const auto filled = at::zeros(sizes, input.dtype);
    for (int64_t i = 0; i < images; ++i) try {
        filled.select(0, i).copy_(read(paths[done + static_cast<size_t>(i)]));
      } catch (const Error& error) {
        if (!bad || error.kind() != ErrorKind::Data) throw;
        bad(done + static_cast<size_t>(i), error);
        unread.push_back(i);
      }
    out.push_back(model_.run({filled}).front().slice(0, 0, images).to(at::kFloat, /*non_blocking=*/false, /*copy=*/!unread.empty()));
    for (const auto i : unread) out.back().select(0, i).fill_(std::numeric_limits<double>::quiet_NaN());
    done += static_cast<size_t>(images);
    if (progress) progress(done);
  }
  return out.empty() ? at::zeros({0, classes()}) : at::cat(out);
}

}  // namespace npu_train
