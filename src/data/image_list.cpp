#include "npu_train/data/image_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>

#include "data/image_file.hpp"
#include "data/json_lines.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImageList = "image_list";

// One line: the file of the image, and its classes or numbers.
struct Line {
  std::string where, image;
  std::vector<std::string> labels;
  std::vector<double> values;
};
using SeeLine = std::function<void(const Line& line)>;

std::string without_blanks(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::vector<std::string> parts_of(const std::string& text, const std::string& separator) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    auto part = without_blanks(text.substr(begin, end - begin));
    if (!part.empty()) out.push_back(std::move(part));
    begin = end + separator.size();
  }
  return out;
}

void for_each_row(const std::string& file, const ImageListColumns& columns, const SeeLine& see) {
  const auto table = read_csv(file, {.bytes = uint64_t{4} << 30, .cells = 100'000'000});
  const auto image = table.index(columns.image);
  const auto label = columns.label.empty() ? std::nullopt : std::optional(table.index(columns.label));
  const auto labels = columns.labels.empty() ? std::nullopt : std::optional(table.index(columns.labels));
  std::vector<std::vector<double>> values;
  for (const auto& name : columns.values) values.push_back(table.numbers(name));
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = table.rows[i];
    Line line{str_cat(file, ", line ", table.lines[i]), row[image], {}, {}};
    if (label) line.labels = {without_blanks(row[*label])};
    if (labels) line.labels = parts_of(row[*labels], columns.separator);
    for (const auto& column : values) line.values.push_back(column[i]);
    see(line);
  }
}

// Returns a class name: a text, or a whole number.
std::string name_in(const Json& value, const std::string& where) {
  return value.kind() == Json::Kind::Integer ? std::to_string(value.integer(where)) : value.text(where);
}

void for_each_object(const std::string& file, const ImageListColumns& columns, const SeeLine& see) {
  for_each_json_line(file, [&](const Json& object, int64_t /*number*/, const std::string& where) {
    const auto at = [&](const std::string& key) -> const Json& { return object.at(key, where); };
    Line line{where, at(columns.image).text(where + ": " + columns.image), {}, {}};
    if (!columns.label.empty()) line.labels = {name_in(at(columns.label), where + ": " + columns.label)};
    if (!columns.labels.empty())
      for (const auto& item : at(columns.labels).items(where + ": " + columns.labels))
        line.labels.push_back(name_in(item, where + ": " + columns.labels));
    for (const auto& key : columns.values) line.values.push_back(at(key).number(where + ": " + key));
    see(line);
  });
}

void for_each_line(const std::string& file, const ImageListColumns& columns, const SeeLine& see) {
  const auto extension = to_lower(fs::path(file).extension().string());
  check(extension == ".csv" || extension == ".jsonl", ErrorKind::Data, kImageList, file, ": allowed: a name that ends in .csv or .jsonl");
  (extension == ".csv" ? for_each_row : for_each_object)(file, columns, see);
}

// Sorts names of classes: numbers by value, so that class 10 follows class 9.
void sort_classes(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  if (std::all_of(names.begin(), names.end(), [](const auto& name) { return whole_number(name).has_value(); }))
    std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return *whole_number(a) < *whole_number(b); });
}

int32_t narrow(size_t value) {
  check(value <= static_cast<size_t>(std::numeric_limits<int32_t>::max()), ErrorKind::Data, kImageList, "more than 2,147,483,647 targets");
  return static_cast<int32_t>(value);
}

}  // namespace

// Numbers the classes while the lines are read. If the list defines the classes, they are numbered in the order in which they occur, until
// sort() gives them their final numbers.
struct ImageList::Reading {
  ImageList& list;
  std::vector<std::string> classes;
  bool defines_classes;
  std::unordered_map<std::string, int32_t> numbers{};

  int32_t number_of(const std::string& name, const std::string& where) {
    check(!name.empty(), ErrorKind::Data, kImageList, where, ": the label is empty");
    const auto [known, is_new] = numbers.try_emplace(name, narrow(classes.size()));
    check(!is_new || defines_classes, ErrorKind::Data, kImageList, where, ": no class of the training data is called '", name, "'");
    if (is_new) classes.push_back(name);
    return known->second;
  }

  void add(const Line& line) {
    detail::path_of_listed_image(list.root_, line.image, line.where, kImageList);
    if (!list.columns_.values.empty()) return add_values(line);
    Row row{line.image, narrow(list.labels_.size()), narrow(line.labels.size())};
    if (!list.columns_.label.empty())
      row.first = number_of(line.labels.front(), line.where);
    else
      for (const auto& name : line.labels) list.labels_.push_back(number_of(name, line.where));
    list.rows_.push_back(std::move(row));
  }

  // Sorts the classes that the list defines and gives them their final numbers.
  void sort() {
    auto sorted = classes;
    sort_classes(sorted);
    std::vector<int32_t> to(classes.size());
    for (size_t i = 0; i < sorted.size(); ++i) to[static_cast<size_t>(numbers.at(sorted[i]))] = static_cast<int32_t>(i);
    const auto renumber = [&](int32_t& number) { number = to[static_cast<size_t>(number)]; };
    if (!list.columns_.label.empty())
      for (auto& row : list.rows_) renumber(row.first);
    std::for_each(list.labels_.begin(), list.labels_.end(), renumber);
    classes = std::move(sorted);
  }

  void add_values(const Line& line) {
    list.rows_.push_back({line.image, narrow(list.numbers_.size()), narrow(line.values.size())});
    for (size_t i = 0; i < line.values.size(); ++i) {
      const auto value = static_cast<float>(line.values[i]);
      check(std::isfinite(value), ErrorKind::Data, kImageList, line.where, ": '", list.columns_.values[i], "' is ", line.values[i],
            "; allowed: a finite number");
      list.numbers_.push_back(value);
    }
  }
};

ImageList::ImageList(std::string root, const std::string& file, ImageListColumns columns, std::vector<std::string> classes)
    : root_(std::move(root)), file_(file), columns_(std::move(columns)) {
  const int kinds = !columns_.label.empty() + !columns_.labels.empty() + !columns_.values.empty();
  check(kinds == 1, ErrorKind::Usage, "data", kinds == 0 ? "none" : "several",
        " of label, labels and values are given; allowed: one of them");
  check(std::set<std::string>(columns_.values.begin(), columns_.values.end()).size() == columns_.values.size(), ErrorKind::Usage,
        "data.values", "names a column twice");
  check(!columns_.separator.empty(), ErrorKind::Usage, "data.separator", "is empty; allowed: at least one character");
  if (!columns_.values.empty()) classes = columns_.values;
  Reading reading{.list = *this, .classes = classes, .defines_classes = classes.empty()};
  for (size_t i = 0; i < classes.size(); ++i) reading.numbers.emplace(classes[i], static_cast<int32_t>(i));
  for_each_line(file, columns_, [&](const Line& line) { reading.add(line); });
  check(!rows_.empty(), ErrorKind::Data, kImageList, file, ": lists no image");
  check(!reading.classes.empty(), ErrorKind::Data, kImageList, file, ": no line has a label");
  if (reading.defines_classes) reading.sort();
  info_.name = kImageList;
  info_.num_classes = static_cast<int64_t>(reading.classes.size());
  info_.class_names = std::move(reading.classes);
  info_.shape = {3, -1, -1};
  info_.mean = {0.485, 0.456, 0.406};
  info_.std = {0.229, 0.224, 0.225};
}

std::string ImageList::where(int64_t index) const { return (fs::path(root_) / rows_.at(static_cast<size_t>(index)).image).string(); }

LabelledImage ImageList::image(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, kImageList, "image ", index, " of ", size());
  const auto& row = rows_[static_cast<size_t>(index)];
  // Checked again, because a folder may have become a link after the list was read.
  const auto path = detail::path_of_listed_image(root_, row.image, file_, kImageList);
  LabelledImage out{{}, detail::read_image_file(path, kImageList), columns_.label.empty() ? 0 : row.first, {}};
  if (!columns_.labels.empty()) {
    out.targets.assign(static_cast<size_t>(info_.num_classes), 0.0f);
    for (int32_t i = 0; i < row.count; ++i) out.targets[static_cast<size_t>(labels_[static_cast<size_t>(row.first + i)])] = 1;
  }
  if (!columns_.values.empty()) out.targets.assign(numbers_.begin() + row.first, numbers_.begin() + row.first + row.count);
  return out;
}

ImageListOptions::ImageListOptions() : DataOptions(ImageFolderOptions()) {}

const ConfigTable<ImageListOptions>& ImageListOptions::config_table() {
  using T = ImageListOptions;
  using Columns = ImageListColumns;
  const auto own = []<class V>(V Columns::*member) { return static_cast<V T::*>(member); };
  static const auto table = split_fields(data_fields(
      ConfigTable<T>("data image_list")
          .field("root", &T::root, "folder to which the paths of images are relative")
          .field("train", &T::train, "list of the training images in root: .csv or .jsonl; must be given")
          .field("val", &T::val, "list of the validation images; empty: none, or see val_split")
          .field("test", &T::test, "list of the test images")
          .field("image", own(&Columns::image), "column, or key of a .jsonl, with the path of an image")
          .field("label", own(&Columns::label), "column with one class, for the task classifier")
          .field("labels", own(&Columns::labels), "column with any number of classes, for the task multilabel_classifier")
          .field("values", own(&Columns::values), "columns with numbers, for the task regressor; 0 and 1 also for multilabel_classifier")
          .field("separator", own(&Columns::separator), "between the names in labels of a .csv")));
  return table;
}

}  // namespace npu_train
