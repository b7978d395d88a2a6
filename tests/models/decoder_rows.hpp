/// Checks of decoders on rows of several lengths, and on rows of several documents.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "models/model_cases.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"

namespace npu_train::testing {

/// Checks that a padded batch has the logits of its rows alone. `tokens` is [3, 50]; the rows begin with 0, 7 and 31 tokens of padding, and
/// are read in pieces of these sizes.
inline void check_padded_batch(const Model& model, const at::Tensor& tokens, const std::vector<int64_t>& sizes = {20, 1, 9, 1, 19}) {
  REQUIRE(tokens.sizes() == at::IntArrayRef({3, 50}));
  REQUIRE(model.start_batch != nullptr);
  model.module->eval();
  const std::vector<int64_t> padding{0, 7, 31};
  const auto more = model.start_batch(at::tensor(padding, at::kLong));
  std::vector<at::Tensor> pieces;
  int64_t first = 0;
  for (const auto size : sizes) {
    pieces.push_back(more(tokens.narrow(1, first, size)));
    first += size;
  }
  const at::Tensor logits = at::cat(pieces, 1);
  CHECK(at::isfinite(logits).all().item<bool>());
  for (int64_t row = 0; row < 3; ++row) {
    CAPTURE(row);
    const auto begin = padding[static_cast<size_t>(row)];
    const at::Tensor text = tokens.narrow(0, row, 1).narrow(1, begin, 50 - begin);
    const at::Tensor difference = model.forward(text) - logits.narrow(0, row, 1).narrow(1, begin, 50 - begin);
    CHECK(difference.abs().max().item<double>() < 1e-5);
  }
}

/// Checks that packed documents have the logits and gradients of each document alone. `tokens` is [1, 60]: four documents, and padding of
/// which each token is a document of its own.
inline void check_packed_documents(const Model& model, const at::Tensor& tokens) {
  REQUIRE(tokens.sizes() == at::IntArrayRef({1, 60}));
  CHECK(model.packs_documents);
  model.module->eval();
  const std::vector<int64_t> lengths{17, 1, 30, 9};
  std::vector<at::Tensor> positions;
  for (const auto length : lengths) positions.push_back(at::arange(length, at::kLong));
  positions.push_back(at::zeros({3}, at::kLong));
  Batch packed;
  packed.set("input", tokens);
  packed.set("position_ids", at::cat(positions).unsqueeze(0));
  const at::Tensor weights = at::randn({60, 256});
  const auto learn = [&](const at::Tensor& logits, int64_t begin) {
    (logits.select(0, 0) * weights.narrow(0, begin, logits.size(1))).sum().backward();
  };

  model.module->zero_grad();
  std::vector<at::Tensor> alone;
  int64_t begin = 0;
  for (const auto length : lengths) {
    const at::Tensor logits = model.forward(tokens.narrow(1, begin, length));
    learn(logits, begin);
    alone.push_back(logits.detach());
    begin += length;
  }
  const auto expected = gradients_of(model);
  const Model recomputed = with_checkpoints(model, std::vector<bool>(model.blocks.size(), true));
  for (const auto* each : {&model, &recomputed}) {
    CAPTURE(each == &recomputed);
    model.module->zero_grad();
    const at::Tensor logits = each->forward(packed).first();
    CHECK((logits.narrow(1, 0, begin) - at::cat(alone, 1)).abs().max().item<double>() < 1e-5);
    learn(logits.narrow(1, 0, begin), 0);
    const auto found = gradients_of(model);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      CHECK((found[i] - expected[i]).abs().max().item<double>() <= 5e-5 * (1 + expected[i].abs().max().item<double>()));
  }
  // Without positions the documents are one text.
  CHECK((model.forward(tokens).narrow(1, 18, 30) - alone[2]).abs().max().item<double>() > 1e-4);

  packed.set("position_ids", at::zeros({1, 59}, at::kLong));
  CHECK(has(error_of([&] { model.forward(packed); }).what(), "position_ids of Long [1, 59] for tokens [1, 60]"));
  packed.set("position_ids", at::arange(10, 70, at::kLong).unsqueeze(0));
  CHECK(has(error_of([&] { model.forward(packed); }).what(), "position 54 of sequence 0 is 64; allowed: 0 to 63"));
}

}  // namespace npu_train::testing
