#!/usr/bin/env python3
"""The Python side of the test of tensor files: tests/io/pt_files.py FOLDER

Checks the files FOLDER/cpp/<dtype>_<sizes>.pt of the C++ test and writes FOLDER/python/*.pt and *.npy, which that test reads. Every tensor
is ramp(). Exits with 77 if torch or numpy is missing."""
import enum
import pathlib
import sys
import types
import warnings
import zipfile

try:
    import numpy
    import torch
except ImportError:
    sys.exit(77)


def ramp(*shape, dtype=torch.float32):
    count = 1
    for extent in shape:
        count *= extent
    return (torch.arange(count) / 4).reshape(shape).to(dtype)


def check(path):
    dtype, sizes = path.stem.split("_")
    expected = ramp(*map(int, filter(None, sizes.split("x"))), dtype=getattr(torch, dtype))
    for mapped in (False, True):
        tensor = torch.load(path, weights_only=True, mmap=mapped)
        assert tensor.dtype == expected.dtype and tensor.shape == expected.shape and not tensor.requires_grad, path
        assert tensor.is_contiguous() and torch.equal(tensor, expected), path
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, path
        info = archive.getinfo("archive/data/0")
        header = path.read_bytes()[info.header_offset:info.header_offset + 30]
        begin = info.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        assert begin % 64 == 0 and info.compress_type == zipfile.ZIP_STORED, path


class Format(enum.IntEnum):
    """Replaces the class of torch_npu with this name."""
    ND = 2


def _rebuild_npu_tensor(storage, offset, size, stride, requires_grad, hooks, npu_format):
    raise NotImplementedError


class OnNpu:
    """Pickles like a tensor on an NPU."""

    def __init__(self, tensor, npu_format):
        self.tensor, self.format = tensor, npu_format

    def __reduce__(self):
        t = self.tensor
        return _rebuild_npu_tensor, (t._typed_storage(), t.storage_offset(), tuple(t.size()), t.stride(), False, {}, self.format)


def save_from_npu(path, npu_format):
    """Saves a tensor like torch.save with torch_npu does for a tensor on an NPU."""
    for name, value in (("torch_npu.utils.storage", _rebuild_npu_tensor), ("torch_npu.npu._format", Format)):
        value.__module__ = name
        for i in range(1, name.count(".") + 2):
            part = ".".join(name.split(".")[:i])
            sys.modules.setdefault(part, types.ModuleType(part))
        setattr(sys.modules[name], value.__name__, value)
    torch.save(OnNpu(ramp(2, 3, 2, 2), npu_format), path)


def pack(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(zipfile.ZipInfo(info.filename), old.read(info), zipfile.ZIP_DEFLATED)


def write(folder):
    folder.mkdir()
    t = ramp(2, 3, 2, 2)
    torch.save(t, folder / "plain.pt")
    torch.save(t, folder / "protocol4.pt", pickle_protocol=4)
    torch.save(torch.nn.Parameter(t), folder / "parameter.pt")
    torch.save(t.to(memory_format=torch.channels_last), folder / "channels_last.pt")
    torch.save(t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), folder / "transposed.pt")
    torch.save(torch.cat([t.flatten(), t.flatten()])[24:].view(2, 3, 2, 2), folder / "offset.pt")
    torch.save(torch.stack([t, -t], 4)[..., 0], folder / "strided.pt")
    pack(folder / "plain.pt", folder / "packed.pt")
    pack(folder / "channels_last.pt", folder / "packed_channels_last.pt")
    save_from_npu(folder / "npu.pt", 2)
    save_from_npu(folder / "npu_format.pt", Format.ND)
    numpy.save(folder / "plain.npy", t.numpy())
    numpy.save(folder / "fortran.npy", numpy.asfortranarray(t.numpy()))

    refused = folder / "refused"
    refused.mkdir()
    torch.save({"w": t}, refused / "a dict.pt")
    torch.save([t, t], refused / "a list.pt")
    torch.save(3, refused / "something else.pt")
    torch.save(t.to(torch.complex64), refused / "complex.pt")
    torch.save(t.to(torch.float8_e4m3fn), refused / "float8.pt")
    torch.save(torch.quantize_per_tensor(t, 0.25, 0, torch.qint8), refused / "quantised.pt")
    torch.save(t.flatten().to_sparse(), refused / "sparse.pt")
    torch.save(torch._neg_view(t), refused / "negated.pt")
    torch.save(t[:1, :1].clone().expand(2, 3, 2, 2), refused / "more elements than its storage.pt")
    torch.save(t, refused / "before PyTorch 1.6.pt", _use_new_zipfile_serialization=False)
    torch.jit.trace(torch.nn.ReLU(), t).save(str(refused / "TorchScript.pt"))
    torch.save(torch.nn.ReLU(), refused / "torch.nn.modules.activation.ReLU.pt")
    numpy.save(refused / "objects.npy", numpy.array([{}], dtype=object))
    numpy.save(refused / "<c8.npy", t.numpy().astype(numpy.complex64))
    numpy.save(refused / ">f4.npy", t.numpy().astype(">f4"))


def main():
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    files = sorted((folder / "cpp").glob("*.pt"))
    assert files, "nothing to check"
    for path in files:
        check(path)
    write(folder / "python")


if __name__ == "__main__":
    main()
