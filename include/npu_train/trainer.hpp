/// The one include for the common case: configuration, trainer, tasks, and the parts for a loop of your own.
#pragma once

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/sampler.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/dist/gradient_reducer.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/optim/clip.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/grad_scaler.hpp"
#include "npu_train/train/classifier.hpp"
