/// Pictures that need no download: ten classes of coloured shapes, 32 x 32 RGB in CIFAR's layout, drawn from a seed.
///
/// Shape alone tells the class: position, size, rotation, colours (light on dark or dark on light), background and noise are drawn per
/// picture. A linear classifier on the pixels cannot do it; a small convolutional network can.
#pragma once

#include <cstdint>
#include <memory>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/picture_dataset.hpp"

namespace npu_train {

/// How hard the pictures are.
struct ShapeStyle {
  double noise = 0.06;      ///< standard deviation of pixel noise, 1 = full scale
  double min_scale = 0.28;  ///< radius of the smallest shape, 1 = side of the picture
  double max_scale = 0.42;  ///< radius of the largest
  double rotation = 20;     ///< degrees to either side
  double shift = 0.10;      ///< largest displacement of the centre, 1 = side of the picture
  double contrast = 0.45;   ///< least difference of brightness between shape and background, 1 = full scale
  static const ConfigTable<ShapeStyle>& config_table();
};

/// `count` pictures with labels 0..9 in turn, shuffled. Picture i depends on (seed, i) alone.
MemoryPictures generate_shapes(int64_t count, uint64_t seed, const ShapeStyle& style = {});

struct GeneratedOptions : DataOptions {
  int64_t train_size = 4096;
  int64_t val_size = 1000;
  int64_t data_seed = 1;
  ShapeStyle style;
  GeneratedOptions();
  static const ConfigTable<GeneratedOptions>& config_table();
};

}  // namespace npu_train
