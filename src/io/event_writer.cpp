#include "npu_train/io/event_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <protozero/pbf_writer.hpp>

#include "io/crc_table.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

using protozero::pbf_writer;

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

template <class Bits>
void put_fixed(std::string& out, Bits bits) {
  for (size_t i = 0; i < sizeof bits; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

// Returns an Event whose content is added by `fill`. A message is complete when its writer is destroyed.
template <class Fill>
std::string event_with(int64_t step, Fill&& fill) {
  std::string out;
  pbf_writer event(out);
  event.add_double(1, wall_time());
  event.add_int64(2, step);
  fill(event);
  return out;
}

// Returns an Event with one value of a Summary; `fill` adds the fields that follow the tag of the value.
template <class Fill>
std::string event_with_value(const std::string& tag, int64_t step, Fill&& fill) {
  return event_with(step, [&](pbf_writer& event) {
    pbf_writer summary(event, 5), value(summary, 1);
    value.add_string(1, tag);
    fill(value);
  });
}

// Adds the metadata of a value for a plugin of TensorBoard.
void add_plugin(pbf_writer& value, const char* name, const std::string& content) {
  pbf_writer metadata(value, 9);
  {
    pbf_writer plugin(metadata, 1);
    plugin.add_string(1, name);
    plugin.add_bytes(2, content);
  }
  metadata.add_enum(4, 2);  // data_class: DATA_CLASS_TENSOR
}

// Adds a google.protobuf.Value.
void add_setting(pbf_writer& entry, const HyperParameter& value) {
  pbf_writer out(entry, 2);
  if (const auto* number = std::get_if<double>(&value)) out.add_double(2, *number);
  if (const auto* text = std::get_if<std::string>(&value)) out.add_string(3, *text);
  if (const auto* is = std::get_if<bool>(&value)) out.add_bool(4, *is);
}

uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Returns a name for a new file. Readers process the files of a folder in name order, and names begin with a time. The new time must exceed
// that of every existing file, including files of the same second or from a machine whose clock is ahead.
std::string new_path(const std::string& dir) {
  constexpr std::string_view kStart = "events.out.tfevents.";
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  auto time = static_cast<int64_t>(wall_time());
  for (const auto& item : std::filesystem::directory_iterator(dir, error)) {
    const auto name = item.path().filename().string();
    if (!name.starts_with(kStart)) continue;
    const auto digits = std::string_view(name).substr(kStart.size(), name.find('.', kStart.size()) - kStart.size());
    if (const auto other = whole_number(digits)) time = std::max(time, *other + 1);
  }
  return (std::filesystem::path(dir) / str_cat(kStart, time, ".", host_name(), ".", ::getpid())).string();
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static constexpr detail::CrcTable table(0x82f63b78u);
  return table.of(data.data(), data.size());
}

EventWriter::EventWriter(const std::string& dir) : file_(new_path(dir)) {
  write_record(event_with(0, [](pbf_writer& event) { event.add_string(3, "brain.Event:2"); }));  // file_version
}

void EventWriter::start_session(int64_t step) {
  write_record(event_with(step, [](pbf_writer& event) {
    pbf_writer log(event, 7);
    log.add_enum(1, 1);  // status: START
  }));
}

void EventWriter::add_scalars(const std::vector<std::pair<std::string, double>>& tags, int64_t step) {
  write_record(event_with(step, [&](pbf_writer& event) {
    pbf_writer summary(event, 5);
    for (const auto& [tag, number] : tags) {
      pbf_writer value(summary, 1);
      value.add_string(1, tag);
      value.add_float(2, static_cast<float>(number));  // simple_value
    }
  }));
}

void EventWriter::add_text(const std::string& tag, std::string_view text, int64_t step) {
  write_record(event_with_value(tag, step, [&](pbf_writer& value) {
    add_plugin(value, "text", "");
    pbf_writer tensor(value, 8);
    tensor.add_enum(1, 7);    // dtype: DT_STRING
    tensor.add_bytes(2, "");  // tensor_shape: a scalar
    tensor.add_bytes(8, text.data(), text.size());
  }));
}

void EventWriter::add_image(const std::string& tag, std::string_view png, int64_t height, int64_t width, int64_t channels, int64_t step) {
  write_record(event_with_value(tag, step, [&](pbf_writer& value) {
    pbf_writer image(value, 4);
    image.add_int64(1, height);
    image.add_int64(2, width);
    image.add_int64(3, channels);
    image.add_bytes(4, png.data(), png.size());
  }));
}

void EventWriter::add_histogram(const std::string& tag, const std::array<double, 5>& totals, const std::vector<double>& limits,
                                const std::vector<double>& counts, int64_t step) {
  write_record(event_with_value(tag, step, [&](pbf_writer& value) {
    pbf_writer histogram(value, 5);
    for (uint32_t i = 0; i < totals.size(); ++i) histogram.add_double(i + 1, totals[i]);
    histogram.add_packed_double(6, limits.begin(), limits.end());
    histogram.add_packed_double(7, counts.begin(), counts.end());
  }));
}

void EventWriter::add_hyperparameters(const std::vector<std::pair<std::string, HyperParameter>>& settings) {
  std::string content;
  {
    pbf_writer data(content);
    pbf_writer start(data, 3);  // session_start_info
    for (const auto& [name, value] : settings) {
      pbf_writer entry(start, 1);
      entry.add_string(1, name);
      add_setting(entry, value);
    }
    start.add_double(5, wall_time());
  }
  write_record(event_with_value("_hparams_/session_start_info", 0, [&](pbf_writer& value) {
    add_plugin(value, "hparams", content);
    pbf_writer tensor(value, 8);
    tensor.add_enum(1, 1);             // dtype: DT_FLOAT
    tensor.add_bytes(2, "\x12\0", 2);  // tensor_shape: no element
  }));
}

void EventWriter::write_record(std::string_view event) {
  std::string frame;
  put_fixed(frame, static_cast<uint64_t>(event.size()));
  put_fixed(frame, masked_crc(frame));
  frame.append(event);
  put_fixed(frame, masked_crc(event));
  file_.write(frame);
}

}  // namespace npu_train
