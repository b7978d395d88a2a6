#include "npu_train/engine/analyze_run.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/loop.hpp"
#include "proof_runs.hpp"

namespace npu_train {

Analysis analyze_run(const RunConfig& given, const AnalysisOptions& options, const Parts& parts) {
  return translated("analyze", [&] {
    const AscendOperators known(options.soc, options.torch);  // before minutes of work
    auto config = detail::without_side_effects(given);
    if (config.device == "auto") config.device = "cpu";
    Trainer trainer(config, parts);
    trainer.setup();
    auto& loader = *trainer.loop().parts().train_loader;
    loader.begin_epoch(0);
    const auto batch = loader.next();
    check(batch.has_value(), ErrorKind::Data, "analyze", "the data gave no batch");
    trainer.train_step(*batch);  // the first step sets up kernels and state
    OperatorInventory inventory(trainer.task().parameters());
    trainer.add_observer(&inventory);
    trainer.train_step(*batch);
    return analyze(inventory, trainer.task().parameters(), options);
  });
}

}  // namespace npu_train
