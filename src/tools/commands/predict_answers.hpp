// The answers of npu_tool predict for each image: as text, as JSON, and as rows of a file.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::cli {

struct ImageAnswer {
  std::string image, error;                               // error: the reason why the image cannot be read; "" if it can
  std::vector<Answer> top;                                // the most probable classes, best first; empty with an error
  std::vector<std::pair<std::string, double>> numbers{};  // outputs of a regression, in place of classes
};

/// Returns {"image": ..., "top": [{"class": 3, "name": "cat", "probability": 0.9}, ...]}, {"image": ..., "values": {"x": 0.5}}, or
/// {"image": ..., "error": ...}.
Json json_of(const ImageAnswer& answer);
std::string text_of(const ImageAnswer& answer);

/// Error(Usage) unless the file's name ends in .csv or .jsonl.
void check_answers_file(const std::string& path);

/// Writes a row for each image, in the format of the file's name. The file is written atomically, so it is never incomplete. The columns of
/// a .csv are image, class_1, probability_1, ... up to `top` (or the names of numbers), and error; a line of a .jsonl is json_of().
void write_answers(const std::string& path, const std::vector<ImageAnswer>& answers, int64_t top);

/// Returns the lines of a file, except blank ones; "-" is standard input. Error(Data) if it cannot be read or has no such line.
std::vector<std::string> listed_images(const std::string& file);

}  // namespace npu_train::cli
