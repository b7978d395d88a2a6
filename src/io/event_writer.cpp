#include "npu_train/io/event_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>

#include "io/crc_table.hpp"
#include "npu_train/core/host_name.hpp"
#include "npu_train/core/str_cat.hpp"
#include "npu_train/core/whole_number.hpp"

namespace npu_train {
namespace {

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Encoding of protocol buffers, as far as an Event uses it.
void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

template <class Bits>
void put_fixed(std::string& out, Bits bits) {
  for (size_t i = 0; i < sizeof bits; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

void put_tag(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}

void put_number(std::string& out, int field, double value) {
  put_tag(out, field, 1);
  put_fixed(out, std::bit_cast<uint64_t>(value));
}

void put_integer(std::string& out, int field, int64_t value) {
  put_tag(out, field, 0);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_numbers(std::string& out, int field, const std::vector<double>& values) {
  std::string packed;
  for (const auto value : values) put_fixed(packed, std::bit_cast<uint64_t>(value));
  put_bytes(out, field, packed);
}

// The fields metadata and tensor of a value for a plugin of TensorBoard.
std::string plugin_value(std::string_view plugin, std::string_view content, std::string_view tensor) {
  std::string data, metadata, out;
  put_bytes(data, 1, plugin);
  put_bytes(data, 2, content);
  put_bytes(metadata, 1, data);
  put_integer(metadata, 4, 2);  // data_class: DATA_CLASS_TENSOR
  put_bytes(out, 9, metadata);
  put_bytes(out, 8, tensor);
  return out;
}

// A google.protobuf.Value.
std::string struct_value(const HyperParameter& value) {
  std::string out;
  if (const auto* number = std::get_if<double>(&value)) put_number(out, 2, *number);
  if (const auto* text = std::get_if<std::string>(&value)) put_bytes(out, 3, *text);
  if (const auto* is = std::get_if<bool>(&value)) put_integer(out, 4, *is ? 1 : 0);
  return out;
}

std::string event_header(int64_t step) {
  std::string out;
  put_tag(out, 1, 1);  // wall_time
  put_fixed(out, std::bit_cast<uint64_t>(wall_time()));
  put_tag(out, 2, 0);  // step
  put_varint(out, static_cast<uint64_t>(step));
  return out;
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
  auto event = event_header(0);
  put_bytes(event, 3, "brain.Event:2");  // file_version
  write_record(event);
}

void EventWriter::start_session(int64_t step) {
  auto event = event_header(step);
  std::string log;
  put_tag(log, 1, 0);  // status
  put_varint(log, 1);  // START
  put_bytes(event, 7, log);
  write_record(event);
}

void EventWriter::add_scalars(const std::vector<std::pair<std::string, double>>& tags, int64_t step) {
  std::string summary;
  for (const auto& [tag, value] : tags) {
    std::string entry;
    put_bytes(entry, 1, tag);
    put_tag(entry, 2, 5);  // simple_value
    put_fixed(entry, std::bit_cast<uint32_t>(static_cast<float>(value)));
    put_bytes(summary, 1, entry);
  }
  auto event = event_header(step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void EventWriter::add_text(const std::string& tag, std::string_view text, int64_t step) {
  std::string tensor;
  put_integer(tensor, 1, 7);  // dtype: DT_STRING
  put_bytes(tensor, 2, "");   // tensor_shape: a scalar
  put_bytes(tensor, 8, text);
  write_value(tag, plugin_value("text", "", tensor), step);
}

void EventWriter::add_image(const std::string& tag, std::string_view png, int64_t height, int64_t width, int64_t channels, int64_t step) {
  std::string image, value;
  put_integer(image, 1, height);
  put_integer(image, 2, width);
  put_integer(image, 3, channels);
  put_bytes(image, 4, png);
  put_bytes(value, 4, image);
  write_value(tag, value, step);
}

void EventWriter::add_histogram(const std::string& tag, const std::array<double, 5>& totals, const std::vector<double>& limits,
                                const std::vector<double>& counts, int64_t step) {
  std::string histogram, value;
  for (size_t i = 0; i < totals.size(); ++i) put_number(histogram, static_cast<int>(i + 1), totals[i]);
  put_numbers(histogram, 6, limits);
  put_numbers(histogram, 7, counts);
  put_bytes(value, 5, histogram);
  write_value(tag, value, step);
}

void EventWriter::add_hyperparameters(const std::vector<std::pair<std::string, HyperParameter>>& settings) {
  std::string start, data, tensor;
  for (const auto& [name, value] : settings) {
    std::string entry;
    put_bytes(entry, 1, name);
    put_bytes(entry, 2, struct_value(value));
    put_bytes(start, 1, entry);
  }
  put_number(start, 5, wall_time());
  put_bytes(data, 3, start);                            // session_start_info
  put_integer(tensor, 1, 1);                            // dtype: DT_FLOAT
  put_bytes(tensor, 2, std::string_view("\x12\0", 2));  // tensor_shape: no element
  write_value("_hparams_/session_start_info", plugin_value("hparams", data, tensor), 0);
}

void EventWriter::write_value(const std::string& tag, std::string_view fields, int64_t step) {
  std::string value, summary;
  put_bytes(value, 1, tag);
  value += fields;
  put_bytes(summary, 1, value);
  auto event = event_header(step);
  put_bytes(event, 5, summary);
  write_record(event);
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
