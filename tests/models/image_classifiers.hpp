// Finds the registered networks that classify images.
#pragma once

#include <algorithm>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train::testing {

// Returns whether the network has classes and an image size. Text networks and CLIP lack one of them. TorchScript is excluded, because its
// network is in a file.
inline bool classifies_images(const ModelRegistry& models, const std::string& name) {
  const auto fields = models.describe(name);
  const auto has_field = [&](const char* wanted) {
    return std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& field) { return field.name == wanted; });
  };
  return name != "torchscript" && has_field("num_classes") && has_field("image_size");
}

}  // namespace npu_train::testing
