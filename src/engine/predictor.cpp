#include "npu_train/engine/predictor.hpp"

#include <algorithm>

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <torch/nn/module.h>

#include "engine/hub_preparation.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {
namespace {

constexpr int64_t kUsualSide = 224;  // image side of a model that does not describe its input

bool is_resize(const PartConfig& step) { return step.name == "resize"; }

/// Returns the side in pixels of the model's images.
int64_t image_side(const Model& model) {
  if (model.inputs.empty() || model.inputs.front().shape.size() != 4) return kUsualSide;
  const auto side = model.inputs.front().shape.back().size;
  return side > 0 ? side : kUsualSide;
}

/// Returns the validation transforms, extended so that they produce a square of `size` pixels.
std::vector<PartConfig> transforms_of(const RunConfig& config, int64_t size) {
  struct Transforms : DataOptions {
    static const ConfigTable<Transforms>& config_table() {
      static const auto table = ConfigTable<Transforms>("data").field(
          "val_transforms", static_cast<std::vector<PartConfig> Transforms::*>(&DataOptions::val_transforms), "");
      return table;
    }
  };
  ConfigNode only = ConfigNode::map();
  if (const auto* steps = config.data.options.find("val_transforms")) only.set("val_transforms", *steps);
  auto steps = bind<Transforms>(only, "data").val_transforms;
  // The data set may contain images of one size only, and then needs no resize. Other images are resized and cropped to the model's size.
  const auto resized = std::find_if(steps.rbegin(), steps.rend(), is_resize);
  if (resized == steps.rend())
    steps.insert(steps.begin(), part("resize", {{"size", size}, {"exact", true}}));
  else if (std::none_of(steps.begin(), steps.end(), [](const PartConfig& step) { return step.name == "center_crop"; }))
    steps.insert(resized.base(), part("center_crop", {{"size", size}}));
  return steps;
}

ImagePreparation preparation_of_run(const RunConfig& run, int64_t size, const Parts& parts) {
  return {transforms_of(run, size), {size, ImagePreparation::imagenet_mean(), ImagePreparation::imagenet_std()}, parts.transforms};
}

/// Returns the preparation that the files next to the weights describe; without such a file, ImageNet's.
ImagePreparation preparation_of_weights(const SourcedModel& from, int64_t size, const Parts& parts) {
  const bool takes_images = !from.model.inputs.empty() && from.model.inputs.front().shape.size() == 4;
  auto described = takes_images && !from.weights.empty() ? detail::hub_preparation(from.weights, size) : std::nullopt;
  if (!described) return ImagePreparation::of_imagenet(size);
  ImagePreparation out(std::move(described->steps), {}, parts.transforms);
  log_info("images are prepared as ", described->file, " describes: ", out.steps_text());
  return out;
}

}  // namespace

Predictor::Predictor(Model model, ImagePreparation preparation, const std::string& device)
    : model_(std::move(model)), device_(resolve_device(device)), preparation_(std::move(preparation)) {
  model_.module->eval();
  model_.module->to(device_.c10());
}

Predictor Predictor::from_source(const ModelSource& source, const std::string& device, const Parts& parts) {
  auto from = model_from(source, parts);
  const auto size = image_side(from.model);
  auto preparation = from.run ? preparation_of_run(*from.run, size, parts) : preparation_of_weights(from, size, parts);
  Predictor p(std::move(from.model), std::move(preparation), device);
  p.classes_ = std::move(from.classes);
  p.checkpoint_ = std::move(from.checkpoint);
  p.why_ = std::move(from.why);
  p.averages_ = from.averages;
  if (from.run && from.run->task.name == "multilabel_classifier") p.meaning_ = OutputMeaning::SeveralClasses;
  if (from.run && from.run->task.name == "regressor") p.meaning_ = OutputMeaning::Numbers;
  return p;
}

Predictor Predictor::from_checkpoint(const std::string& path, const std::string& device, const Parts& parts) {
  return from_source({.checkpoint = path}, device, parts);
}

Predictor Predictor::from_checkpoint(const std::string& path, const std::vector<std::string>& overrides, const std::string& device,
                                     const Parts& parts) {
  return from_source({.checkpoint = path, .overrides = overrides}, device, parts);
}

Predictor Predictor::from_weights(const std::string& name, int64_t num_classes, const std::string& weights, const std::string& device,
                                  const Parts& parts) {
  return from_weights(PartConfig{.name = name, .options = {{"num_classes", num_classes}}, .mark = {}}, weights, device, parts);
}

Predictor Predictor::from_weights(const PartConfig& named, const std::string& weights, const std::string& device, const Parts& parts) {
  return from_source({.model = named, .weights = weights}, device, parts);
}

at::Tensor Predictor::operator()(const at::Tensor& input) const {
  return translated("Predictor", [&] {
    const at::NoGradGuard no_grad;
    return model_.forward(input.to(device_.c10())).to(at::kCPU, at::kFloat);
  });
}

at::Tensor Predictor::predict(const std::vector<ImageView>& images) const {
  return translated("Predictor", [&] {
    check(!images.empty(), ErrorKind::Usage, "Predictor", "there are no images");
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < images.size(); ++i) try {
        inputs.push_back(preparation_.prepare(images[i]));
        check(inputs.back().sizes() == inputs.front().sizes(), ErrorKind::Usage, "Predictor", "after the transforms the size is ",
              inputs.back().sizes(), ", and that of the first image ", inputs.front().sizes(), "; a batch has images of one size");
      } catch (const Error& e) {
        if (images.size() == 1) throw;
        throw Error(e.kind(), e.where(), str_cat("image ", i, ": ", e.message()));
      }
    return (*this)(at::stack(inputs));
  });
}

std::vector<Answer> top_answers(const at::Tensor& logits, const std::vector<std::string>& classes, int64_t top, OutputMeaning meaning) {
  check(meaning != OutputMeaning::Numbers, ErrorKind::Usage, "top_answers",
        "the outputs are numbers and not classes (task regressor); hint: Predictor::operator()");
  const auto flat = logits.flatten();
  const auto [share, index] =
      at::topk(meaning == OutputMeaning::OneClass ? at::softmax(flat, 0) : at::sigmoid(flat), std::min(top, logits.numel()));
  std::vector<Answer> out;
  for (int64_t i = 0; i < index.numel(); ++i) {
    Answer answer{index[i].item<int64_t>(), "", share[i].item<double>()};
    const auto k = static_cast<size_t>(answer.label);
    answer.name = k < classes.size() ? classes[k] : std::to_string(answer.label);
    out.push_back(std::move(answer));
  }
  return out;
}

std::vector<Answer> Predictor::classify(const std::string& path, int64_t top) const {
  return top_answers((*this)(read_image(path).unsqueeze(0)), top);
}

}  // namespace npu_train
