#include "predict_answers.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::cli {
namespace {

std::string csv_of(const std::vector<ImageAnswer>& answers, int64_t top) {
  const auto count = static_cast<size_t>(top);
  std::vector<std::string> header = {"image"};
  const auto with_numbers = std::find_if(answers.begin(), answers.end(), [](const auto& answer) { return !answer.numbers.empty(); });
  const auto numbers = with_numbers == answers.end() ? 0 : with_numbers->numbers.size();
  for (size_t i = 0; i < numbers; ++i) header.push_back(with_numbers->numbers[i].first);
  for (size_t i = 1; i <= count; ++i) {
    header.push_back(str_cat("class_", i));
    header.push_back(str_cat("probability_", i));
  }
  header.emplace_back("error");
  std::string out = csv_row(header);
  for (const auto& answer : answers) {
    std::vector<std::string> row = {answer.image};
    for (size_t i = 0; i < numbers; ++i) row.push_back(answer.numbers.empty() ? "" : shortest(answer.numbers[i].second));
    for (size_t i = 0; i < count; ++i) {
      const bool known = i < answer.top.size();
      row.push_back(known ? answer.top[i].name : "");
      row.push_back(known ? printed("%.6f", answer.top[i].probability) : "");
    }
    row.push_back(answer.error);
    out += csv_row(row);
  }
  return out;
}

std::string json_lines_of(const std::vector<ImageAnswer>& answers) {
  std::string out;
  for (const auto& answer : answers) out += json_of(answer).dump(0) + "\n";
  return out;
}

}  // namespace

Json json_of(const ImageAnswer& answer) {
  auto out = Json::object({{"image", answer.image}});
  if (!answer.error.empty()) return out.set("error", answer.error);
  if (!answer.numbers.empty()) {
    auto values = Json::object();
    for (const auto& [name, value] : answer.numbers) values.set(name, value);
    return out.set("values", std::move(values));
  }
  Json top = Json::array();
  for (const auto& one : answer.top)
    top.push_back(Json::object({{"class", one.label}, {"name", one.name}, {"probability", one.probability}}));
  return out.set("top", std::move(top));
}

std::string text_of(const ImageAnswer& answer) {
  std::string out = answer.image + "\n";
  if (!answer.error.empty()) return out + "  cannot be read\n";
  for (const auto& [name, value] : answer.numbers) out += printed("  %s %.6g\n", name.c_str(), value);
  for (const auto& one : answer.top) out += printed("  %6.2f %%  %s\n", 100 * one.probability, one.name.c_str());
  return out;
}

void check_answers_file(const std::string& path) {
  check(path.empty() || path.ends_with(".csv") || path.ends_with(".jsonl"), ErrorKind::Usage, "predict", "--to ", path,
        "; allowed: a name that ends in .csv or .jsonl");
}

void write_answers(const std::string& path, const std::vector<ImageAnswer>& answers, int64_t top) {
  size_t classes = 0;
  for (const auto& answer : answers) classes = std::max(classes, answer.top.size());
  write_file_atomic(path, path.ends_with(".csv") ? csv_of(answers, std::min(top, static_cast<int64_t>(classes))) : json_lines_of(answers));
}

std::vector<std::string> listed_images(const std::string& file) {
  std::ifstream opened;
  if (file != "-") opened.open(file);
  std::istream& in = file == "-" ? std::cin : opened;
  std::stringstream text;
  text << in.rdbuf();
  std::vector<std::string> out;
  for_each_line(text.view(), [&](std::string_view line) {
    if (!line.empty()) out.emplace_back(line);
  });
  check(!text.fail() && !out.empty(), ErrorKind::Data, "predict", "--list ", file,
        " cannot be read or names no image; hint: a path a line");
  return out;
}

}  // namespace npu_train::cli
