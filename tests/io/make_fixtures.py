#!/usr/bin/env python3
"""Writes tests/io/fixtures/*.pth with PyTorch (any version from 1.6). The files are committed; run this only to change them."""
import argparse
import collections
import datetime
import os
import pathlib
import pickle
import sys
import types
import zipfile

import numpy
import torch

HERE = pathlib.Path(__file__).parent / "fixtures"


def ramp(*shape, dtype=torch.float32):
    count = 1
    for extent in shape:
        count *= extent
    return (torch.arange(count) / 4).reshape(shape).to(dtype)


class Evil:
    """Pickles as a call of any function, as in a hostile file."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def with_pickle(path, data, more=()):
    """Writes an archive like that of torch.save, with this pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
        for name, content in dict(more).items():
            archive.writestr(name, content)


def repack(source, target, method, zip64=False):
    limits = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    if zip64:  # makes zipfile write the 64-bit records that large archives have
        zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = 0, 0
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for info in old.infolist():
            new.writestr(zipfile.ZipInfo(info.filename), old.read(info), method)
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limits


def attribute_dict(values):
    """The values in a replacement for the type in which Lightning saves hyperparameters, with the same name."""
    name = "lightning.fabric.utilities.data"
    module = types.ModuleType(name)
    module.AttributeDict = type("AttributeDict", (dict,), {"__module__": name})
    for i in range(1, name.count(".") + 2):
        sys.modules[".".join(name.split(".")[:i])] = module
    return module.AttributeDict(values)


def training_checkpoint():
    """Like the checkpoints of training programs: tensors among plain data of many classes. The test counts the names of the tensors."""
    counts = collections.defaultdict(list, {"seen": [1, 2]})
    args = argparse.Namespace(model="resnet50", lr=0.1, data_dir=pathlib.PurePosixPath("/data/imagenet"), opt_betas=None, amp=True,
                              dtype=torch.float16, device=torch.device("cuda", 0), shape=torch.Size([3, 224]),
                              inner=argparse.Namespace(weight=ramp(2)))
    return {
        "epoch": 3, "arch": "resnet50", "args": args, "state_dict": collections.OrderedDict(weight=ramp(2, 3), bias=ramp(2)),
        "metric": numpy.float64(76.1), "best": numpy.int64(2), "history": numpy.arange(3.0), "flag": numpy.bool_(True), "counts": counts,
        "factory": collections.defaultdict(dict), "counter": collections.Counter("aab"), "set": {1, 2}, "frozen": frozenset("x"),
        "queue": collections.deque([1, 2], maxlen=5), "hyper_parameters": attribute_dict({"lr": 0.1, "scale": ramp(2)}),
        "path": pathlib.PurePosixPath("a/b"), "big": 1 << 100, "bytes": b"\x00\xff", "complex": 1 + 2j, "range": range(3), "dtype": numpy.dtype("<f4"),
        "time": datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc), "took": datetime.timedelta(seconds=3),
        "types": [int, float, torch.bfloat16, numpy.float32], "torch": torch.__version__, "size": ramp(2, 3).shape,
    }


def main():
    HERE.mkdir(exist_ok=True)
    state = collections.OrderedDict()
    state["conv.weight"] = ramp(2, 3, 2, 2)
    state["conv.bias"] = ramp(2)
    state["bn.num_batches_tracked"] = torch.tensor(7)
    torch.save(state, HERE / "state_dict.pth")

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for value in model.state_dict().values():
            value.copy_(ramp(*value.shape).to(value.dtype))
    torch.save(model.state_dict(), HERE / "module.pth")  # state_dict() is an OrderedDict with _metadata

    names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8".split()
    torch.save({n: ramp(2, 3, dtype=getattr(torch, n)) for n in names} | {"bool": torch.tensor([True, False])}, HERE / "dtypes.pth")

    base = ramp(4, 6)
    torch.save({"base": base, "row": base[1], "column": base[:, 2], "transposed": base.t(), "empty": base[:0],
                "channels_last": ramp(1, 2, 3, 3).to(memory_format=torch.channels_last)}, HERE / "views.pth")

    torch.save({"state_dict": {"w": torch.nn.Parameter(ramp(3))}, "epoch": 3, "lr": 0.5, "name": "x", "none": None, "flag": True,
                "optimizer": {"state": {0: {"exp_avg": ramp(3)}}, "param_groups": [{"params": [0], "betas": (0.9, 0.999)}]}}, HERE / "checkpoint.pth")
    torch.save(state, HERE / "protocol4.pth", pickle_protocol=4)
    for protocol in (2, 4):
        torch.save(training_checkpoint(), HERE / f"training{protocol}.ckpt", pickle_protocol=protocol)
    repack(HERE / "state_dict.pth", HERE / "deflated.pth", zipfile.ZIP_DEFLATED)
    repack(HERE / "state_dict.pth", HERE / "zip64.pth", zipfile.ZIP_STORED, zip64=True)
    torch.save(state, HERE / "old_format.pth", _use_new_zipfile_serialization=False)
    with_pickle(HERE / "torchscript.pth", pickle.dumps({}, 2), {"archive/constants.pkl": pickle.dumps((), 2)})
    torch.save(torch.nn.Linear(2, 2), HERE / "whole_model.pth")

    with_pickle(HERE / "evil_system.pth", pickle.dumps({"w": Evil(os.system, "touch /tmp/npu_train_was_here")}, 2))
    with_pickle(HERE / "evil_eval.pth", pickle.dumps({"w": Evil(eval, "1+1")}, 2))


if __name__ == "__main__":
    main()
