// The page of npu_tool predict.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/report/report.hpp"
#include "predict_answers.hpp"
#include "tools/commands/console/console.hpp"

namespace npu_train::cli {

/// Adds what only a page shows: how many images each class got, and a thumbnail of each image with its answers, which the reader can filter
/// by class. If there are more than 2,000 images, the page shows the first 2,000 and reports this. `origin`: a sentence about the model; ""
/// for none.
void add_predictions_page(Report& out, const std::vector<ImageAnswer>& answers, const std::string& origin, const WorkProgress& progress);

}  // namespace npu_train::cli
