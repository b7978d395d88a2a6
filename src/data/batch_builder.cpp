#include "data/batch_builder.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "data/pad_field.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

/// Returns the current exception as an Error that names the sample.
Error error_of_sample(int64_t index, const std::string& where) {
  const Error cause = translate_current_exception("Loader", ErrorKind::Data);
  const std::string what = cause.where() == "Loader" ? cause.message() : cause.what();
  const std::string place = where.empty() || what.find(where) != std::string::npos ? "" : " (" + where + ")";
  return Error(cause.kind(), "Loader", "sample " + std::to_string(index) + place + ": " + what, "", std::current_exception());
}

/// Fills rows `real` to `total` - 1 by repeating the first `real` rows of `bytes` bytes.
void repeat_rows(void* data, int64_t bytes, int64_t real, int64_t total) {
  auto* rows = static_cast<char*>(data);
  for (int64_t i = real; i < total; ++i) std::memcpy(rows + i * bytes, rows + (i % real) * bytes, static_cast<size_t>(bytes));
}

/// Returns `value` with its rows repeated, so that it has `rows` rows.
at::Tensor repeated(const at::Tensor& value, int64_t rows) {
  const auto real = value.size(0);
  if (real == rows) return value;
  auto shape = value.sizes().vec();
  shape.front() = rows;
  at::Tensor all = at::empty(shape, value.options());
  const auto bytes = static_cast<int64_t>(value.nbytes()) / real;
  if (bytes > 0) std::memcpy(all.data_ptr(), value.contiguous().const_data_ptr(), value.nbytes());
  repeat_rows(all.data_ptr(), bytes, real, rows);
  return all;
}

/// Writes an image as planes of the given size; a single channel fills all of them.
void write_bytes(const Image& image, int64_t channels, int64_t height, int64_t width, uint8_t* out) {
  check(image.height() == height && image.width() == width && (image.channels() == channels || image.channels() == 1), ErrorKind::Data,
        "Pipeline", "an image has size ", image.channels(), " x ", image.height(), " x ", image.width(), ", but ", channels, " x ", height,
        " x ", width, " is expected; all images of a data set must have its size");
  const Image planes = image.dense(PixelOrder::Planar);
  const int64_t area = height * width;
  for (int64_t c = 0; c < channels; ++c)
    std::memcpy(out + c * area, planes.plane(image.channels() == 1 ? 0 : c), static_cast<size_t>(area));
}

/// Converts floats [N, C, H, W] to the memory order N, H, W, C. Uses plain loops, because at::contiguous would start a thread team in every
/// worker.
at::Tensor to_channels_last(const at::Tensor& planes) {
  at::Tensor out = at::empty(planes.sizes(), planes.options().memory_format(at::MemoryFormat::ChannelsLast));
  const int64_t n = planes.size(0), c = planes.size(1), area = planes.size(2) * planes.size(3);
  const auto* src = planes.const_data_ptr<float>();
  auto* dst = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < c; ++k) {
      for (int64_t p = 0; p < area; ++p) dst[(i * area + p) * c + k] = src[(i * c + k) * area + p];
    }
  }
  return out;
}

}  // namespace

LoaderOptions checked(LoaderOptions options, const Dataset* dataset) {
  check(options.batch_size >= 1, ErrorKind::Usage, "Loader", "batch_size is ", options.batch_size, "; it must be at least 1");
  check(options.num_workers >= 0 && options.num_workers <= 1024, ErrorKind::Usage, "Loader", "num_workers is ", options.num_workers,
        "; it must be from 0 to 1024");
  check(options.prefetch_factor >= 1 && options.prefetch_factor <= 64, ErrorKind::Usage, "Loader", "prefetch_factor is ",
        options.prefetch_factor, "; it must be from 1 to 64");
  check(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, ErrorKind::Usage, "Loader", "rank ",
        options.rank, " of ", options.world_size);
  if (dataset == nullptr) {
    check(!options.shuffle, ErrorKind::Usage, "Loader", "a stream cannot be shuffled; hint: shuffle it at its source");
    return options;
  }
  check(dataset->size() > 0, ErrorKind::Data, "Loader", "the data set '", dataset->info().name, "' is empty");
  const int64_t n = options.subset.empty() ? dataset->size() : static_cast<int64_t>(options.subset.size());
  check(options.batch_size <= n, ErrorKind::Usage, "Loader", "batch_size is ", options.batch_size, " and ",
        options.subset.empty() ? "" : "the subset of ", "the data set '", dataset->info().name, "' has ", n,
        " samples; hint: data.batch_size=", n);
  return options;
}

BatchBuilder::BatchBuilder(std::shared_ptr<const Dataset> dataset, bool image_stream, Pipeline pipeline, const LoaderOptions& options,
                           DatasetInfo info)
    : dataset_(std::move(dataset)),
      images_(dynamic_cast<const ImageDataset*>(dataset_.get())),
      captions_(dynamic_cast<const CaptionedImages*>(dataset_.get())),
      sequences_(dynamic_cast<const SequenceDataset*>(dataset_.get())),
      decodes_(images_ != nullptr || image_stream),
      targets_(images_ != nullptr ? images_->targets() : 0),
      pipeline_(std::move(pipeline)),
      options_(options),
      info_(std::move(info)) {
  check(!decodes_ || !options_.collate, ErrorKind::Usage, "data.collate", "the data set '", info_.name,
        "' provides images, which are decoded into the batch; allowed: to leave it out; hint: derive the data set from Dataset");
  check(decodes_ || !options_.augment_on_device, ErrorKind::Usage, "data.augment_on", "device: the data set '", info_.name,
        "' provides tensors, not images of bytes; hint: data.augment_on=host, or derive it from ImageDataset");
  if (!decodes_) return;
  check(info_.shape.size() == 3, ErrorKind::Usage, "Loader", "the data set '", info_.name,
        "' provides images but no shape (channels, height, width)");
  channels_ = info_.shape[0];
  const auto [height, width] = pipeline_.output_size({info_.shape[1], info_.shape[2]});
  check(height > 0 && width > 0, ErrorKind::Usage, "Loader", "the data set '", info_.name,
        "' does not give the size of its images, and no transform gives them a fixed one; hint: add one (center_crop, random_resized_crop, "
        "or "
        "resize with exact: true)");
  height_ = height;
  width_ = width;
  if (!options_.augment_on_device) return;
  auto split = split_for_device(pipeline_, channels_, {info_.shape[1], info_.shape[2]});
  std::tie(height_, width_) = split.device->input_size();
  pipeline_ = std::move(split.host);
  augment_ = std::move(split.device);
}

void BatchBuilder::open(Job& job) const {
  const auto real = static_cast<int64_t>(job.ids.size());
  const int64_t rows = options_.last_batch == LastBatch::Pad ? options_.batch_size : real;
  if (!decodes_) {
    job.samples.resize(real);
    return;
  }
  at::Tensor target = targets_ > 0 ? at::empty({rows, targets_}, at::kFloat) : at::empty({rows}, at::kLong);
  if (targets_ > 0)
    job.targets = target.mutable_data_ptr<float>();
  else
    job.labels = target.mutable_data_ptr<int64_t>();
  if (augment_ != nullptr) {
    at::Tensor input = at::empty({rows, channels_, height_, width_}, at::kByte);
    job.bytes = input.mutable_data_ptr<uint8_t>();
    job.batch = Batch(std::move(input), std::move(target));
    const auto drawn = [&](const char* name, int64_t count, auto*& data, at::ScalarType dtype) {
      if (count == 0) return;
      at::Tensor numbers = at::empty({rows, count}, dtype);
      data = numbers.mutable_data_ptr<std::remove_reference_t<decltype(*data)>>();
      job.batch.set(name, std::move(numbers));
    };
    drawn(DeviceAugment::kFloats, augment_->floats(), job.floats, at::kFloat);
    drawn(DeviceAugment::kIntegers, augment_->integers(), job.integers, at::kInt);
    return;
  }
  const auto format = options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  at::Tensor input = at::empty({rows, channels_, height_, width_}, at::TensorOptions(at::kFloat).memory_format(format));
  job.pixels = input.mutable_data_ptr<float>();
  job.batch = Batch(std::move(input), std::move(target));
}

void BatchBuilder::fill(Job& job, int64_t begin, int64_t end, uint64_t seed) const {
  for (int64_t i = begin; i < end; ++i) {
    try {
      make_sample(job, i, seed);
    } catch (...) {
      const auto error = error_of_sample(job.ids[i], where(job, i));
      // Only Error(Data) is skipped: any other exception may be a fault of the program.
      if (!options_.skip_bad_samples || translate_current_exception("Loader").kind() != ErrorKind::Data) throw error;
      job.bad[i] = error.what();
    }
  }
}

std::string BatchBuilder::where(const Job& job, int64_t position) const {
  if (dataset_ != nullptr) return dataset_->where(job.ids[position]);
  return job.images.empty() ? std::string() : job.images[position].where;
}

void BatchBuilder::make_sample(Job& job, int64_t position, uint64_t seed) const {
  const int64_t index = job.ids[position];
  Philox rng = sample_rng(seed, job.epoch, index);
  if (decodes_) {
    const LabelledImage image = images_ != nullptr ? images_->image(index) : job.images[position].read();
    write(job, position, image, rng);
    write_target(job, position, image);
    return;
  }
  if (dataset_ != nullptr) job.samples[position] = dataset_->get(index);
  if (!pipeline_.empty()) transform(job.samples[position], index, rng);
}

void BatchBuilder::write_target(Job& job, int64_t position, const LabelledImage& image) const {
  if (job.labels != nullptr) {
    job.labels[position] = image.label;
    return;
  }
  check(static_cast<int64_t>(image.targets.size()) == targets_, ErrorKind::Data, "Loader", "the image has ", image.targets.size(),
        " targets and its data set says ", targets_);
  std::copy(image.targets.begin(), image.targets.end(), job.targets + position * targets_);
}

void BatchBuilder::write(Job& job, int64_t position, const LabelledImage& image, Philox& rng) const {
  const std::string place = image.encoded.empty() ? std::string() : where(job, position);
  const int64_t first = position * channels_ * height_ * width_;
  if (augment_ == nullptr) {
    pipeline_.run(image, place, rng, {job.pixels + first, height_, width_, channels_, options_.channels_last});
    return;
  }
  write_bytes(pipeline_.run_to_bytes(image, place, rng), channels_, height_, width_, job.bytes + first);
  augment_->draw(rng, job.floats + position * augment_->floats(), job.integers + position * augment_->integers());
}

void BatchBuilder::transform(Sample& sample, int64_t index, Philox& rng) const {
  for (auto& [name, value] : sample.fields) {
    if (name != "input") continue;
    check(value.scalar_type() == at::kByte && value.dim() == 3, ErrorKind::Usage, "Loader",
          "transforms need an \"input\" of uint8 [channels, height, width]; it is ", value.scalar_type(), " ", value.sizes());
    const at::Tensor bytes = value.contiguous();
    const LabelledImage image{Image::view(bytes.const_data_ptr<uint8_t>(), bytes.size(1), bytes.size(2), bytes.size(0)), {}, 0};
    value = pipeline_.run_to_tensor(image, {}, rng);
  }
}

void BatchBuilder::pad_sequences(Job& job) const {
  constexpr std::array kOfTokens = {"loss_mask", "position_ids"};  // fields with a value for each token of the input
  int64_t length = options_.last_batch == LastBatch::Pad ? sequences_->longest() : sequences_->shortest_batch();
  for (size_t i = 0; i < job.samples.size(); ++i) {
    const auto* input = find_field(job.samples[i], "input");
    check(input != nullptr && input->dim() == 1 && input->scalar_type() == at::kLong && input->size(0) > 0, ErrorKind::Data, "Loader",
          "sample ", job.ids[i], " of the sequences has no \"input\" of ids, Long [tokens]");
    length = std::max(length, input->size(0));
    for (const char* name : kOfTokens)
      if (const auto* value = find_field(job.samples[i], name))
        check(value->dim() == 1 && value->size(0) == input->size(0) && value->scalar_type() == at::kLong, ErrorKind::Data, "Loader", "'",
              name, "' of sample ", job.ids[i], " is ", value->scalar_type(), " ", value->sizes(), "; allowed: Long [", input->size(0),
              "], as its input");
  }
  for (auto& sample : job.samples)
    for (const char* name : kOfTokens)
      if (auto* value = find_field(sample, name)) *value = padded(*value, length, 0);
  pad_field(job.samples, "input", static_cast<double>(sequences_->padding()), length, "attention_mask");
}

void BatchBuilder::add_captions(Job& job) const {
  constexpr int64_t kIgnored = -100;  // ignore_index of the task language_model
  const bool fixed = options_.last_batch == LastBatch::Pad, answers = captions_->questions().has_value();
  std::vector<std::vector<int64_t>> texts;
  int64_t length = fixed ? captions_->longest() : 0;
  for (const auto id : job.ids) {
    texts.push_back(captions_->caption(id));
    length = std::max(length, static_cast<int64_t>(texts.back().size()));
  }
  if (answers) --length;  // the last token of a text is a target only
  const auto real = static_cast<int64_t>(texts.size()), rows = fixed ? options_.batch_size : real;
  at::Tensor tokens = at::full({rows, length}, captions_->padding(), at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < real; ++i) {
    const auto& text = texts[static_cast<size_t>(i)];
    std::copy(text.begin(), text.end() - (answers ? 1 : 0), out + i * length);
  }
  const int64_t bytes = length * static_cast<int64_t>(sizeof(int64_t));
  repeat_rows(out, bytes, real, rows);
  job.batch.set("tokens", std::move(tokens));
  job.batch.erase("target");  // replaced by the text
  if (!answers) return;
  at::Tensor targets = at::full({rows, length}, kIgnored, at::kLong);
  auto* next = targets.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < real; ++i) {
    const auto& text = texts[static_cast<size_t>(i)];
    const auto prompt = captions_->prompt(job.ids[static_cast<size_t>(i)]);
    std::copy(text.begin() + prompt, text.end(), next + i * length + prompt - 1);
  }
  repeat_rows(next, bytes, real, rows);
  job.batch.set("target", std::move(targets));
}

void BatchBuilder::collate(Job& job) const {
  for (size_t i = 0; i < job.samples.size(); ++i) job.samples[i].index = job.ids[i];  // for messages
  auto samples = std::exchange(job.samples, {});
  job.batch =
      options_.collate ? translated("collate", ErrorKind::Usage, [&] { return options_.collate(std::move(samples)); }) : stack(samples);
  const auto real = static_cast<int64_t>(job.ids.size());
  const auto fields = job.batch.fields();
  check(!fields.empty(), ErrorKind::Usage, "collate", "the function returned a batch without tensors");
  for (const auto& [name, value] : fields) {
    check(value.defined() && value.device().is_cpu(), ErrorKind::Usage, "collate", "the field '", name, "' is not a tensor on the host");
    const bool by_row = value.dim() > 0 && value.size(0) == real;
    auto all = by_row && options_.last_batch == LastBatch::Pad ? repeated(value, options_.batch_size) : value;
    const bool image = options_.channels_last && all.dim() == 4 && all.scalar_type() == at::kFloat && name == "input";
    if (image) all = to_channels_last(all.contiguous());
    job.batch.set(name, std::move(all));
  }
}

void BatchBuilder::pad(Job& job) const {
  const auto real = static_cast<int64_t>(job.ids.size());
  if (decodes_) {
    for (const auto& [name, rows] : job.batch.fields())
      repeat_rows(rows.data_ptr(), static_cast<int64_t>(rows.nbytes()) / options_.batch_size, real, options_.batch_size);
  }
  at::Tensor mask = at::zeros({options_.batch_size}, at::kFloat);
  std::fill_n(mask.mutable_data_ptr<float>(), real, 1.0f);
  job.batch.set("mask", std::move(mask));
}

void BatchBuilder::leave_out_bad(Job& job) const {
  std::vector<int64_t> good;
  for (size_t i = 0; i < job.bad.size(); ++i)
    if (job.bad[i].empty()) good.push_back(static_cast<int64_t>(i));
  if (good.size() == job.bad.size()) return;
  const auto kept = static_cast<int64_t>(good.size());
  if (decodes_) {
    for (const auto& [name, rows] : job.batch.fields()) {
      const auto bytes = static_cast<int64_t>(rows.nbytes()) / rows.size(0);
      auto* data = static_cast<char*>(rows.data_ptr());
      for (int64_t k = 0; k < kept; ++k) std::memmove(data + k * bytes, data + good[k] * bytes, static_cast<size_t>(bytes));
    }
    if (options_.last_batch != LastBatch::Pad) job.batch = job.batch.map([kept](const at::Tensor& t) { return t.narrow(0, 0, kept); });
  }
  for (int64_t k = 0; k < kept; ++k) {
    if (good[k] == k) continue;  // moving a sample onto itself would empty it
    job.ids[k] = job.ids[good[k]];
    if (!decodes_) job.samples[k] = std::move(job.samples[good[k]]);
  }
  job.ids.resize(kept);
  if (!decodes_) job.samples.resize(kept);
}

void BatchBuilder::close(Job& job) const {
  leave_out_bad(job);
  if (job.ids.empty()) return;
  if (sequences_ != nullptr && !options_.collate) pad_sequences(job);
  if (!decodes_) collate(job);
  if (options_.last_batch == LastBatch::Pad) pad(job);
  if (captions_ != nullptr) add_captions(job);
  job.batch.size = static_cast<int64_t>(job.ids.size());
  job.batch.weight = static_cast<double>(job.batch.size);
  job.batch.ids = job.ids;
  job.batch.epoch = job.epoch;
  job.batch.index = job.index;
  if (augment_ != nullptr)
    job.batch.pending.emplace_back(
        [augment = augment_, last = options_.channels_last](Batch batch) { return augment->finish(std::move(batch), last); });
  if (options_.finish) job.batch = translated("Loader", [&] { return options_.finish(std::move(job.batch)); });
}

}  // namespace npu_train::detail
