/// Images that need no download: ten classes of coloured shapes, 32 x 32 RGB in CIFAR's layout, drawn from a seed.
///
/// Only the shape determines the class; position, size, rotation, colours (light on dark or dark on light), background and noise are drawn
/// per image. A linear classifier on the pixels cannot learn the classes; a small convolutional network can.
#pragma once

#include <cstdint>
#include <memory>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

/// The difficulty of the images.
struct ShapeStyle {
  double noise = 0.06;      ///< standard deviation of pixel noise, 1 = full scale
  double min_scale = 0.28;  ///< radius of the smallest shape, 1 = side of the image
  double max_scale = 0.42;  ///< radius of the largest shape
  double rotation = 20;     ///< largest rotation in either direction, degrees
  double shift = 0.10;      ///< largest displacement of the centre, 1 = side of the image
  double contrast = 0.45;   ///< minimum difference of brightness between shape and background, 1 = full scale
  static const ConfigTable<ShapeStyle>& config_table();
};

/// Returns `count` images with equally frequent labels 0..9, shuffled. Image i depends only on (seed, i).
MemoryImages generate_shapes(int64_t count, uint64_t seed, const ShapeStyle& style = {});

struct GeneratedOptions : DataOptions {
  int64_t train_size = 4096;
  int64_t val_size = 1000;
  int64_t data_seed = 1;
  ShapeStyle style;
  GeneratedOptions();
  static const ConfigTable<GeneratedOptions>& config_table();
};

}  // namespace npu_train
